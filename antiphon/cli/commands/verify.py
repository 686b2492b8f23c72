"""`antiphon verify`: check every byte of a conversation, here or as a hub sends it."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from antiphon.cli.commands import second_look
from antiphon.cli.commands.findings import Findings, check
from antiphon.cli.common import (
    STILL_READ,
    ChecksFailed,
    ConversationArgument,
    EndLost,
    Session,
    UsageInvalid,
    command,
    opened_bundle,
)
from antiphon.cli.views import counted
from replica.conversation import Quarantined
from replica.ids import ConversationId, EntryId, short
from replica.io import Store, open_read_only
from replica.log import Entry


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
        hub: Annotated[
            bool, typer.Option("--hub", help="Compare with what the hub sends a new replica.")
        ] = False,
        everything: Annotated[bool, typer.Option("--all", help="Every conversation held.")] = False,
    ) -> None:
        """Check ids, signatures, digests, lanes, seals and drafts; exit 1 for damage.

        Forks, void entries and withheld bodies are caused by their authors. They are listed as
        notes and do not count as damage.
        """
        lost, differs = 0, None
        if hub and (bundle is not None or everything):
            raise UsageInvalid("--hub compares one conversation, without --bundle and --all")
        if hub:
            findings, differs = await second_look.look(session, conversation)
            found = [findings]
        elif bundle is not None:
            with opened_bundle(bundle) as opened:
                found = [check(opened.entries[0].conversation, opened.entries)]
        else:
            found, lost = await _check_store(session, conversation, everything=everything)
        for findings in found:
            _report(session, findings)
        if differs is not None:
            raise differs
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
