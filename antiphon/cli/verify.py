"""`antiphon verify`: check every byte of a conversation, without any network.

All entries are admitted again to an empty log, with checks of ids, digests,
signatures, lanes and seals. Neither the hub nor this replica's indexes are
trusted.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from antiphon.cli.command import ConversationArgument, command
from antiphon.cli.errors import ChecksFailed, EndLost, FileUnusable
from antiphon.cli.rows import counted
from antiphon.cli.session import STILL_READ, Session
from replica.conversation import Conversation, Quarantined, extend_digest, start_digest
from replica.errors import EntryRefused
from replica.ids import ConversationId, EntryId, short
from replica.io import Store, open_read_only
from replica.log import Entry, Generation, Kind, decode_bundle, send_order


@dataclass(slots=True)
class Findings:
    """The findings of the checks of one conversation."""

    conversation: ConversationId
    entries: int = 0
    seals: int = 0
    generations: int = 0
    digest: str = ""
    bad: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    """Unusual but allowed: void entries, forked lanes, seals that lost to an earlier one."""

    def record(self) -> dict[str, Any]:
        """Return the findings as a JSON object."""
        return {
            "conversation": self.conversation.hex(),
            "ok": not self.bad,
            "entries": self.entries,
            "seals": self.seals,
            "generations": self.generations,
            "digest": self.digest,
            "bad": self.bad,
            "noted": self.noted,
        }


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "verify", rich_help_panel="Keep")
    async def verify(
        session: Session,
        conversation: ConversationArgument = None,
        *,
        bundle: Annotated[
            Path | None, typer.Option(help="Check this file instead of the store.")
        ] = None,
        everything: Annotated[bool, typer.Option("--all", help="Every conversation held.")] = False,
    ) -> None:
        """Check ids, signatures, digests, lanes, seals and drafts; exit 1 for damage.

        What the authors did is noted: forks, void entries, bodies that they kept back.
        """
        lost = 0
        if bundle is not None:
            entries = decode_bundle(read_file(bundle)).entries
            found = [check(entries[0].conversation, entries)]
        else:
            found, lost = await _check_store(session, conversation, everything=everything)
        for findings in found:
            _report(session, findings)
        if any(findings.bad for findings in found):
            count = sum(len(findings.bad) for findings in found)
            raise ChecksFailed(f"{counted(count, 'check', 'checks')} failed")
        if lost:
            raise EndLost(f"the store lost the last {counted(lost, 'entry', 'entries')} written")


async def _check_store(
    session: Session, prefix: str | None, *, everything: bool
) -> tuple[list[Findings], int]:
    """Return the findings per conversation, and the entries lost at the end of the store."""
    async with contextlib.AsyncExitStack() as stack:
        path = session.require_store()
        try:
            # With the lock, bad rows are quarantined, and a peer can send them again.
            store = await stack.enter_async_context(await Store.open(path))
        except STILL_READ:
            store = await stack.enter_async_context(open_read_only(path))
        if everything:
            wanted = [stored.conversation for stored in await store.conversations()]
        else:
            wanted = [await session.choose(store, prefix)]
        found = [await _check_stored(store, conversation) for conversation in wanted]
        return found, store.lost_count


async def _check_stored(store: Store, conversation: ConversationId) -> Findings:
    before = store.quarantined_count
    entries = (await store.load(conversation)).entries
    findings = check(conversation, tuple(entries))
    unread = store.quarantined_count - before
    rows = [q for q in await store.quarantined() if q.conversation == conversation]
    lost = without_copy(rows, entries)
    findings.bad += [_quarantine_words(q) for q in lost]
    if unread > len(lost):
        findings.bad.append(f"{unread - len(lost)} rows fail their digest")
    return findings


def without_copy(rows: Iterable[Quarantined], entries: Iterable[Entry]) -> list[Quarantined]:
    """Return the rows in quarantine of which these entries hold no sound copy, received since."""
    sound = {entry.id for entry in entries if entry.body is not None}
    return [row for row in rows if EntryId(row.id) not in sound]


def _quarantine_words(row: Quarantined) -> str:
    noun = "body of entry" if row.body_only else "entry"
    return f"{noun} {short(row.id)} is in quarantine: {row.why}"


def check(conversation: ConversationId, entries: tuple[Entry, ...]) -> Findings:
    """Admit entries to an empty conversation and return the findings."""
    findings = Findings(conversation)
    fresh = Conversation(conversation)
    for entry in sorted(entries, key=send_order):
        try:
            fresh.admit(entry)
        except EntryRefused as error:
            findings.bad.append(f"entry {short(entry.id)}: {error.detail} [{error.reason}]")
    log = fresh.log
    for entry in log.pending.values():
        absent = [i for i in entry.header.ancestors() if i not in log.entries]
        names = ", ".join(short(i) for i in absent) or "the grant of its author"
        findings.bad.append(f"entry {short(entry.id)} lacks {names}")
    _check_bodies(fresh, findings)
    _check_order(fresh, findings)
    findings.entries, findings.digest = len(log), log.digest.hex()
    return findings


def _check_bodies(fresh: Conversation, findings: Findings) -> None:
    for entry in fresh.log.entries.values():
        if entry.body is None:
            # One that was lost here is in quarantine; others may never have had it (ENT-7).
            findings.noted.append(f"entry {short(entry.id)} came without its body")
        elif fresh.log.is_malformed(entry.id):
            findings.noted.append(f"entry {short(entry.id)} is void: its body does not parse")
        elif not _counts(fresh, entry):
            findings.noted.append(f"entry {short(entry.id)} is void: its author may not write it")
    for lane, seq, ids in fresh.log.equivocations():
        names = " and ".join(short(i) for i in ids)
        # History, which no repair can change, and which two signatures prove.
        findings.noted.append(
            f"forked lane: {short(lane.author)} wrote {names} at position {seq} of one lane"
        )


def _counts(fresh: Conversation, entry: Entry) -> bool:
    """Say whether an entry has effect: it is visible, or its author's own leaving."""
    membership = fresh.log.membership
    if entry.header.kind == Kind.MEMBER:
        return membership.counts(entry)
    return membership.is_visible(entry)


def _check_order(fresh: Conversation, findings: Findings) -> None:
    for seal_id, reason in fresh.order.void.items():
        words = f"seal {short(seal_id)} is void: {reason.value}. {reason.next_step}"
        findings.noted.append(words)  # as all that its author did: it is signed, and stays
    findings.seals = len(fresh.order.nodes)
    for node in fresh.order.nodes.values():
        body = fresh.log.body(node.generation) if node.generation is not None else None
        if not isinstance(body, Generation):
            continue
        findings.generations += 1
        stream = extend_digest(start_digest(node.seal.request, body.run), body.token_ids)
        if body.draft_digest not in (None, stream):
            findings.noted.append(
                f"generation {short(node.generation or b'')}: its tokens are not those it streamed"
            )


def _report(session: Session, findings: Findings) -> None:
    out = session.out
    if out.as_json:
        out.emit(findings.record())
        return
    mark = ("bad ", "bold red") if findings.bad else ("ok  ", "bold green")
    out.item(
        Text.assemble(mark, short(findings.conversation), "  "),
        f"{counted(findings.entries, 'entry', 'entries')}"
        f", {counted(findings.seals, 'seal', 'seals')}"
        f", {counted(findings.generations, 'generation', 'generations')}",
        f"digest {findings.digest[:12]}",
    )
    for words in findings.bad:
        out.item(Text.assemble(("    bad   ", "red")), words)
    for words in findings.noted:
        out.item(Text.assemble(("    note  ", "yellow")), words)


def read_file(path: Path) -> bytes:
    """Read a file. Raises FileUnusable."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileUnusable(f"{path}: {error.strerror}") from error
