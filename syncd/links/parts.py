"""Long Entries messages in parts, between which other links are served (LINK-92).

Pure. A signature takes 0.1 ms to verify, so a full frame would hold all other links for
long. The membership entries of a stranger stay together, since they are judged together;
the others follow once it is a member.
"""

from collections.abc import Callable, Iterable, Iterator

from replica.conversation import Conversation
from replica.errors import EntryRefused
from replica.ids import EntryId, PublicKey
from replica.link import JUDGED_ENTRIES, STEP_ENTRIES, Entries, Message
from replica.log import MEMBERSHIP_TRACKS, Entry

Refused = tuple[tuple[EntryId, EntryRefused], ...]

STEP_BODY_BYTES = 32 * 1024
"""Bytes of the bodies of one step: a field has two at least, and takes some 4 µs to decode."""


def parts(
    message: Message, held: Callable[[], Conversation | None], peer: PublicKey | None
) -> Iterator[Message]:
    """Yield the message, in parts if it has many entries; `held` is asked before each.

    The rest of a stranger's message is left out where its first part is refused. Behind many
    entries come parts without any, in which the uncovered ones are answered (ORD-16).
    """
    if not isinstance(message, Entries) or _is_one_step(message):
        yield message
        return

    def is_member() -> bool:
        now = held()
        return now is not None and peer is not None and now.is_member(peer)

    entries = message.entries
    if not is_member():
        if not message.brings_genesis:
            yield Entries(message.conversation, entries)  # refused unread
            return
        shown = tuple(e for e in entries if e.header.track in MEMBERSHIP_TRACKS)
        entries = tuple(e for e in entries if e.header.track not in MEMBERSHIP_TRACKS)
        has_more = bool(entries or message.refused)
        yield Entries(message.conversation, shown, more=has_more)
        if not has_more or not is_member():
            return
    steps, refused = list(_steps(entries)), list(_in_steps(message.refused))
    judging = max(0, len(message.entries) - 1) // JUDGED_ENTRIES
    last = max(len(steps), len(refused)) + judging - 1
    for index in range(last + 1):
        of_step = steps[index] if index < len(steps) else ()
        with_it = refused[index] if index < len(refused) else ()
        yield Entries(message.conversation, of_step, with_it, more=index < last)


def _is_one_step(message: Entries) -> bool:
    items = len(message.entries) + len(message.refused)
    return items <= STEP_ENTRIES and _body_bytes(message.entries) <= STEP_BODY_BYTES


def _body_bytes(entries: Iterable[Entry]) -> int:
    return sum(len(entry.body or b"") for entry in entries)


def _in_steps(refused: Refused) -> Iterator[Refused]:
    for at in range(0, len(refused), STEP_ENTRIES):
        yield refused[at : at + STEP_ENTRIES]


def _steps(entries: tuple[Entry, ...]) -> Iterator[tuple[Entry, ...]]:
    """Divide entries into steps of so many entries, and of so many bytes of bodies."""
    begin = size = 0
    for end, entry in enumerate(entries):
        size += len(entry.body or b"")
        if end - begin == STEP_ENTRIES or (end > begin and size > STEP_BODY_BYTES):
            yield entries[begin:end]
            begin, size = end, len(entry.body or b"")
    if begin < len(entries):
        yield entries[begin:]
