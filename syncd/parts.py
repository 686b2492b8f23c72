"""Long Entries messages in parts, between which other links are served (LINK-92).

Pure. A signature takes 0.1 ms to verify, so a full frame would hold all other links for
long. The membership entries of a stranger stay together, since they are judged together;
the others follow once it is a member.
"""

from collections.abc import Callable, Iterator

from replica.conversation import Conversation
from replica.ids import PublicKey
from replica.link import STEP_ENTRIES, Entries, Message
from replica.log import MEMBERSHIP_TRACKS


def parts(
    message: Message, held: Callable[[], Conversation | None], peer: PublicKey | None
) -> Iterator[Message]:
    """Yield the message, in parts if it has many entries; `held` is asked before each.

    The rest of a stranger's message is left out where its first part is refused.
    """
    if not isinstance(message, Entries) or _items(message) <= STEP_ENTRIES:
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
    for at in range(0, max(len(entries), len(message.refused)), STEP_ENTRIES):
        end = at + STEP_ENTRIES
        yield Entries(message.conversation, entries[at:end], message.refused[at:end])


def _items(message: Entries) -> int:
    return len(message.entries) + len(message.refused)
