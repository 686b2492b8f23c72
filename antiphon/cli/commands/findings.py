"""The checks of every byte of a conversation, without any network.

All entries are admitted again to an empty log, with checks of ids, digests,
signatures, lanes and seals. Neither the hub nor this replica's indexes are
trusted.
"""

from dataclasses import dataclass, field
from typing import Any

from replica.conversation import Conversation, extend_digest, start_digest
from replica.errors import EntryRefused
from replica.ids import ConversationId, short
from replica.log import Entry, Generation, Kind, send_order


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
