"""Valid entries that do not count: passed on, and void for the same reason everywhere."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replica.conversation.conversation import Conversation
from replica.conversation.next_seal import open_requests
from replica.document.fold import ClientForeign
from replica.document.lib0 import NestingTooDeep, text, varuint
from replica.document.projection import client_id
from replica.ids import Lane, Track
from replica.io.driver.replica import Replica
from replica.log.body import DocumentUpdate, Grant, Member, Request, Role, Sampling
from replica.log.entry import Entry
from replica.order.tail import tail
from replica.order.verdict import VoidReason
from tests.replica.document.document_writer import put, update_of
from tests.support.callers import PATIENCE_S, ServedHub, serve_hub
from tests.support.hub_views import grant, held, membership_heads
from tests.support.stories import answer, seal_of
from tests.support.writers import Writer, said


class Views:
    """The hub's view of the conversation, and that of a member's replica."""

    def __init__(self, served: ServedHub, replica: Replica) -> None:
        self.served, self.replica = served, replica

    async def both(self) -> list[Conversation]:
        """Return both views once the replica has caught up."""
        shelf, digest = self.replica.shelf, held(self.served).log.digest
        assert await self.replica.wait_for(
            lambda: self.served.id in shelf and shelf[self.served.id].log.digest == digest,
            PATIENCE_S,
        )
        return [held(self.served), shelf[self.served.id]]

    async def push(self, *entries: Entry) -> None:
        """Push entries to the hub; it admits them although they are void."""
        assert await self.served.owner.calls.push(self.served.id, entries) == {
            entry.id: None for entry in entries
        }


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as built:
        yield built


@pytest.fixture
async def views(served: ServedHub, tmp_path: Path) -> AsyncIterator[Views]:
    """A reader's replica that follows the conversation."""
    reader = Writer(5)
    await grant(served, reader, Role.READER)
    path = tmp_path / "replica.db"
    async with Replica.open(path, reader.key, served.hub.address, follow=True) as replica:
        yield Views(served, replica)


async def test_entries_a_role_may_not_write_are_void_everywhere(served: ServedHub, views: Views):
    writer = Writer(2)
    await grant(served, writer, Role.WRITER)
    body = Member(Grant(Writer(9).public, Role.WRITER))
    change = writer.write(served.id, body, parents=membership_heads(served))
    await views.push(change)
    await served.say("and now for something else")
    for view in await views.both():
        assert change.id in view.log.entries
        assert [e.id for e in tail(view.order, None)] == [e.id for e in served.entries[1:]]
        assert not view.is_member(Writer(9).public)


async def test_entries_of_a_reader_are_refused_and_offered_to_nobody(
    served: ServedHub, views: Views
):
    reader = Writer(2)
    await grant(served, reader, Role.READER)
    word = reader.write(served.id, said("I may only read"), parents=[served.entries[-1]])
    body = Member(Grant(Writer(9).public, Role.WRITER))
    change = reader.write(served.id, body, parents=membership_heads(served))
    answers = await served.owner.calls.push(served.id, [word, change])
    assert [fault.reason for fault in answers.values() if fault] == ["ROLE_FORBIDS"] * 2
    await served.say("and now for something else")
    hub, other = await views.both()
    for entry in (word, change):
        assert not hub.log.membership.is_visible(hub.log.entries[entry.id])
        assert entry.id not in other.log.entries
    assert not hub.is_member(Writer(9).public)


async def test_an_incomplete_seal_is_void(served: ServedHub, views: Views):
    host = Writer(3)
    await grant(served, host, Role.HOST)
    body = Request(host.public, Sampling())
    request = served.writer.write(served.id, body, parents=[served.entries[-1]])
    await views.push(request)
    everything = [*served.entries[1:], request]

    def sealed(*entries: Entry) -> Entry:
        wording = seal_of(held(served), request.id, tuple(e.id for e in entries), None)
        listed = [*membership_heads(served), *entries]
        return host.write(served.id, wording, parents=[request], listed=listed)

    wrong = sealed(*everything[1:])
    await views.push(wrong)
    for view in await views.both():
        assert view.order.void == {wrong.id: VoidReason.COVERAGE_WRONG}
        assert view.order.seal_of == {}
        assert open_requests(view, host.public) == [request.id]
    right = sealed(*everything)
    generation = host.write(served.id, answer("Right."), parents=[right], basis=right)
    await views.push(right, generation)
    for view in await views.both():
        assert view.order.void == {wrong.id: VoidReason.COVERAGE_WRONG}
        assert view.order.generation_of(request.id) == generation.id
        assert open_requests(view, host.public) == []


async def test_an_update_of_a_foreign_client_or_nested_too_deep_changes_no_document(
    served: ServedHub, views: Views
):
    own = client_id(Lane(served.writer.public, served.writer.epoch, Track.DOCUMENT))
    foreign = update_of(put("title", "stolen", by=own + 1))
    head = b"\x01\x01" + varuint(own) + b"\x00\x28\x01" + text("meta") + text("title") + b"\x01"
    deep = head + b"\x75\x01" * 65 + b"\x7e\x00"
    good = update_of(put("title", "ours", by=own))
    entries, last = [], served.genesis
    for update in (foreign, deep, good):
        last = served.writer.write(served.id, DocumentUpdate(update), parents=[last])
        entries.append(last)
    await views.push(*entries)
    for view in await views.both():
        said_by_all = view.document.projection
        assert said_by_all.void == {
            entries[0].id: ClientForeign.reason,
            entries[1].id: NestingTooDeep.reason,
        }
        assert said_by_all.meta == {"title": "ours"}
        assert view.document.heads == (last.id,)
