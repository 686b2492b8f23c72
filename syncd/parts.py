"""Long Entries messages in parts, between which other links are served (LINK-92).

Pure. A signature takes 0.1 ms to verify, so a full frame would hold all other links for
long. The membership entries of a stranger stay together, since they are judged together;
the others follow once it is a member.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest

from replica.conversation import Conversation
from replica.ids import PublicKey
from replica.link import STEP_ENTRIES, Entries, Message
from replica.log import MEMBERSHIP_TRACKS, Entry

STEP_BODY_BYTES = 32 * 1024
"""Bytes of the bodies of one step: a field has two at least, and takes some 4 µs to decode."""


def parts(
    message: Message, held: Callable[[], Conversation | None], peer: PublicKey | None
) -> Iterator[Message]:
    """Yield the message, in parts if it has many entries; `held` is asked before each.

    The rest of a stranger's message is left out where its first part is refused.
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
        yield Entries(
            message.conversation,
            tuple(e for e in entries if e.header.track in MEMBERSHIP_TRACKS),
        )
        if not is_member():
            return
        entries = tuple(e for e in entries if e.header.track not in MEMBERSHIP_TRACKS)
    starts = range(0, len(message.refused), STEP_ENTRIES)
    refused = (message.refused[at : at + STEP_ENTRIES] for at in starts)
    for of_step, with_it in zip_longest(_steps(entries), refused, fillvalue=()):
        yield Entries(message.conversation, of_step, with_it)


def _is_one_step(message: Entries) -> bool:
    items = len(message.entries) + len(message.refused)
    return items <= STEP_ENTRIES and _body_bytes(message.entries) <= STEP_BODY_BYTES


def _body_bytes(entries: Iterable[Entry]) -> int:
    return sum(len(entry.body or b"") for entry in entries)


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
