"""The state of a hub under test, and its answers on links and calls."""

from typing import Any, TypeVar

from antiphon.conformance.io import calls
from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, Digest
from replica.link.messages import Hello, Open
from replica.log.body import Grant, Member, Role
from replica.log.entry import Entry
from tests.support.callers import Caller, RawLink, ServedHub
from tests.support.writers import Writer, said

_M = TypeVar("_M")


def held(served: ServedHub) -> Conversation:
    """Return the hub's conversation in memory."""
    return served.hub.driver.hub.shelf[served.id]


def has_admitted(served: ServedHub, entry: Entry) -> bool:
    """Say whether an entry is in the hub's log, also while a fold of it pauses."""
    found = served.hub.driver.hub.shelf.find(served.id)
    return found is not None and entry.id in found.log.entries


async def stored(served: ServedHub) -> list[Entry]:
    """Return the hub's conversation on disk."""
    return (await served.hub.driver.store.load(served.id)).entries


def membership_heads(served: ServedHub) -> list[Entry]:
    """Return the entries that the next membership entry follows."""
    log = held(served).log
    return [log.entries[i] for i in log.membership_heads()] or [served.genesis]


async def grant(served: ServedHub, writer: Writer, role: Role) -> None:
    """Grant a role to a key."""
    body = Member(Grant(writer.public, role))
    entry = served.writer.write(served.id, body, parents=membership_heads(served))
    assert await served.owner.calls.push(served.id, (entry,)) == {entry.id: None}


def next_message(served: ServedHub, text: str) -> Entry:
    """Write the owner's next message without sending it."""
    entry = served.writer.write(served.id, said(text), parents=[served.entries[-1]])
    served.entries.append(entry)
    return entry


async def open_link(caller: Caller, conversation: ConversationId) -> RawLink:
    """Greet, and open a conversation of which the caller holds nothing."""
    link = caller.link()
    await link.send(Hello((1,)), Open(conversation, Digest(bytes(32)), ()))
    return link


async def next_of(link: RawLink, kind: type[_M]) -> _M:
    """Skip to the next message of a kind."""
    while (message := await link.read()) is not None:
        if isinstance(message, kind):
            return message
    raise AssertionError(f"the link ended before any {kind.__name__}")


async def refusal(call: Any) -> tuple[str, str]:
    """Return the reason and the next step a call ends with, as received."""
    found = await calls.refusal(call)
    return found.reason, found.next_step
