"""A hub that lies to a real replica over gRPC, as the table in SECURITY.md lists it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from antiphon import aio
from antiphon.v1 import sync_pb2 as pb
from replica import limits
from replica.conversation.drafts import Draft
from replica.core import selection
from replica.ids import ConversationId, Digest, EntryId
from replica.io import rpc
from replica.io.driver import hub_link
from replica.io.driver.replica import Replica
from replica.io.serving.grpc_server import listen
from replica.limits import LISTING_ITEMS_MAX, OPENING_MAX
from replica.link import greeting
from replica.link.auth import Authenticator
from replica.link.codec import decode_frame, encode_frame
from replica.link.events import DraftReceived, Event, SyncState
from replica.link.messages import (
    Ack,
    Entries,
    Fault,
    Hello,
    Listing,
    ListingItem,
    Message,
    Open,
    Opened,
    Ping,
    Pong,
)
from replica.log.body import Genesis, Grant, Member, Role
from tests.support.callers import serve_hub, until
from tests.support.writers import Writer, said

OWNER, EVE, HUB = Writer(1), Writer(3), Writer(66)
OTHER = Digest(b"another digest".ljust(32, b"."))
Lie = Callable[[Message], Iterable[Message]]
"""The answers of the hub to a message."""


def mark(conversation: ConversationId) -> Fault:
    """Return a fault that is delivered once all before it was received."""
    return Fault("MARK", conversation=conversation, entry=EntryId(b"m" * 32))


class LyingHub:
    """A hub that proves its key, greets, and then answers as `lie` says."""

    def __init__(self, writer: Writer = HUB) -> None:
        self.authenticator = Authenticator(writer.key, b"s" * 32)
        self.lie: Lie = lambda _message: ()
        self.received: list[Message] = []
        self.address = ""
        self.marks = True
        self.trailer: bytes | None = None
        """The details of the status with which Authenticate ends, None if it succeeds."""
        self.hosts_named: pb.HostsResponse | None = None
        """The answer to Hosts; None for no answer at all."""
        self.fetched: tuple[pb.FetchResponse, ...] = ()
        """The answer to Fetch, whatever is asked for."""
        self.fetch_ends = True
        """Whether a Fetch ends behind its answer."""
        self._context: Any = None

    async def authenticate(
        self, request: pb.AuthenticateRequest, context: rpc.Context
    ) -> pb.AuthenticateResponse:
        if self.trailer is not None:
            details = (("grpc-status-details-bin", self.trailer),)
            await context.abort(grpc.StatusCode.ABORTED, "", details)
        return rpc.answer_authenticate(self.authenticator, request)

    async def hosts(self, _request: pb.HostsRequest, _context: rpc.Context) -> pb.HostsResponse:
        if self.hosts_named is None:
            await asyncio.Event().wait()
        assert self.hosts_named is not None
        return self.hosts_named

    async def fetch(
        self, _request: pb.FetchRequest, _context: rpc.Context
    ) -> AsyncIterator[pb.FetchResponse]:
        for response in self.fetched:
            yield response
        if not self.fetch_ends:
            await asyncio.Event().wait()

    async def link(self, frames: AsyncIterator[bytes], context: rpc.Context) -> None:
        self._context = context
        async for data in frames:
            message = decode_frame(data, "to_hub")
            self.received.append(message)
            answers = [*self.lie(message)]
            if isinstance(message, Hello):
                answers.insert(0, greeting.welcome(self.authenticator.public))
            elif isinstance(message, Ping):
                answers.insert(0, Pong(message.nonce))
            if isinstance(message, Open) and self.marks:
                answers.append(mark(message.conversation))
            await self.say(*answers)

    async def say(self, *messages: Message) -> None:
        for message in messages:
            await self._context.write(encode_frame(message, "to_client"))

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.received if isinstance(message, kind)]


@asynccontextmanager
async def lying(hub: LyingHub, address: str = "127.0.0.1:0") -> AsyncIterator[LyingHub]:
    server = grpc.aio.server(options=rpc.SERVER_OPTIONS)
    handlers = {
        "Authenticate": rpc.unary(pb.AuthenticateRequest, hub.authenticate),
        "Hosts": rpc.unary(pb.HostsRequest, hub.hosts),
        "Link": grpc.stream_stream_rpc_method_handler(hub.link),
        "Fetch": rpc.server_stream(pb.FetchRequest, hub.fetch),
    }
    name = "antiphon.v1.SyncService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    hub.address = listen(server, address)
    await server.start()
    try:
        yield hub
    finally:
        await server.stop(0)


@pytest.fixture
async def hub() -> AsyncIterator[LyingHub]:
    async with lying(LyingHub()) as built:
        yield built


@asynccontextmanager
async def owner(
    folder: Path, address: str, *, follow: bool = False
) -> AsyncIterator[tuple[Replica, ConversationId]]:
    """Open a replica with one conversation of two messages."""
    async with Replica.open(folder / "log.db", OWNER.key, None) as offline:
        conversation = await offline.create(Genesis((OWNER.public,)))
        for text in ("one", "two"):
            await offline.append(conversation, said(text), parents=(EntryId(conversation),))
    async with Replica.open(folder / "log.db", OWNER.key, address, follow=follow) as replica:
        await replica.follow(conversation)
        yield replica, conversation


async def test_an_ack_of_what_was_never_sent_is_not_believed(tmp_path: Path, hub: LyingHub):
    async with owner(tmp_path, hub.address) as (replica, conversation):
        ids = tuple(replica.shelf[conversation].log.entries)
        hub.lie = lambda m: [Ack(conversation, ids)] if isinstance(m, Open) else []
        await until(lambda: replica.hub.refusal(conversation) is not None)
        assert replica.hub.unsynced(conversation) == len(ids)
        assert not any(replica.hub.is_acked(conversation, one) for one in ids)


async def test_equal_to_what_was_never_asked_is_not_believed(tmp_path: Path, hub: LyingHub):
    """The digest is right: that of the log with an entry that the hub was not asked about."""
    hub.marks = False
    async with owner(tmp_path, hub.address) as (replica, conversation):
        await until(lambda: bool(hub.of(Open)))
        await replica.append(conversation, said("three"), parents=(EntryId(conversation),))
        digest = replica.shelf[conversation].log.digest
        await hub.say(Opened(conversation, digest, True, None, 1), mark(conversation))
        await until(lambda: replica.hub.refusal(conversation) is not None)
        assert replica.hub.state(conversation) is not SyncState.SYNCHRONIZED
        assert replica.hub.unsynced(conversation) == 4


async def test_forged_and_changed_entries_are_refused(tmp_path: Path, hub: LyingHub):
    async with owner(tmp_path, hub.address) as (replica, conversation):
        held = replica.shelf[conversation]
        genesis = held.log.entries[EntryId(conversation)]
        grant = EVE.write(conversation, Member(Grant(EVE.public, Role.OWNER)), parents=[genesis])
        good = Writer(1, epoch=9).write(conversation, said("x"), parents=[genesis])
        changed, unsigned = replace(good, body=b"changed!" * 4), replace(good, signature=bytes(64))
        before, heads = set(held.log.entries), held.log.heads()
        forged = Entries(conversation, (changed, unsigned, grant))
        hub.lie = lambda m: (
            [Opened(conversation, OTHER, False, heads, m.number), forged]
            if isinstance(m, Open)
            else []
        )
        await until(lambda: replica.hub.refusal(conversation) is not None)
        assert set(held.log.covered()) == before
        assert held.log.membership.roles.keys() == {OWNER.public}


async def test_invented_listings_cost_bounded_memory_and_few_opens(
    tmp_path: Path, hub: LyingHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "LISTED_MAX", 3_000)

    def lie(message: Message) -> list[Message]:
        if not isinstance(message, Hello):
            return []
        ids = [ConversationId(n.to_bytes(32, "big")) for n in range(5_000)]
        items = [ListingItem(one, EVE.public, awaited=False) for one in ids]
        starts = range(0, len(items), LISTING_ITEMS_MAX)
        return [Listing(tuple(items[at : at + LISTING_ITEMS_MAX])) for at in starts]

    hub.lie = lie
    async with owner(tmp_path, hub.address, follow=True) as (replica, conversation):
        listed = replica.on_demand.selection
        await until(lambda: sum(listed.left_out().values()) + len(listed.open) == 3_000)
        await until(lambda: len(hub.of(Open)) > OPENING_MAX)
        await replica.flush()
        assert len({m.conversation for m in hub.of(Open)} - {conversation}) == OPENING_MAX
        assert replica.hub.is_linked
    async with aio.open(tmp_path / "program", hub=hub.address) as program:
        listed = program._core.on_demand.selection
        await until(lambda: sum(listed.left_out().values()) + len(listed.open) == 3_000)
        await program._core.flush()
        assert len(program._listed) == 3_000


async def test_a_draft_that_no_host_streamed_is_dropped(tmp_path: Path, hub: LyingHub) -> None:
    async with owner(tmp_path, hub.address) as (replica, conversation):
        events: list[Event] = []
        replica.listen(events.append)
        draft = Draft(conversation, EntryId(b"r" * 32), 1, 0, (1,), 0, b"x", OTHER, bytes(64))
        hub.lie = lambda m: [draft] if isinstance(m, Open) else []
        await until(lambda: replica.hub.refusal(conversation) is not None)
        assert not any(isinstance(event, DraftReceived) for event in events)


async def test_a_hub_that_drops_what_it_acks_is_believed_until_another_one_is_linked(
    tmp_path: Path, hub: LyingHub
) -> None:
    """It repeats the digest that it was sent, and stores nothing."""
    hub.lie = lambda m: (
        [Opened(m.conversation, m.digest, True, None, m.number)] if isinstance(m, Open) else []
    )
    async with owner(tmp_path, hub.address) as (replica, conversation):
        assert await replica.wait_synced(conversation)
    async with serve_hub(tmp_path / "honest") as honest:
        address = honest.hub.address
        async with Replica.open(tmp_path / "log.db", OWNER.key, address) as replica:
            await replica.follow(conversation)
            assert await replica.wait_synced(conversation)
        assert len(honest.hub.driver.hub.shelf[conversation].log) == 3


async def test_another_key_at_a_pinned_address_gets_no_link(tmp_path: Path, hub: LyingHub) -> None:
    async with owner(tmp_path, hub.address) as (replica, _):
        await until(lambda: replica.hub.is_linked)
    other = LyingHub(Writer(67))
    other.address = hub.address
    hub.authenticator = other.authenticator
    async with Replica.open(tmp_path / "log.db", OWNER.key, hub.address) as replica:
        await until(lambda: replica.hub.last_error is not None)
        assert replica.hub.last_error is not None
        assert replica.hub.last_error.reason == "PEER_IDENTITY_CHANGED"
        assert not replica.hub.is_linked


async def test_a_malformed_status_is_an_error_like_any_other_and_the_link_comes_back(
    tmp_path: Path, hub: LyingHub
) -> None:
    hub.trailer = b"\xff"
    async with owner(tmp_path, hub.address) as (replica, _):
        await until(lambda: replica.hub.last_error is not None)
        assert replica.hub.last_error is not None
        assert replica.hub.last_error.reason == "HUB_UNREACHABLE"
        hub.trailer = None
        await until(lambda: replica.hub.is_linked)


async def test_a_bug_of_the_link_does_not_look_as_if_the_hub_were_away(
    tmp_path: Path, hub: LyingHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with owner(tmp_path, hub.address) as (replica, _):
        await until(lambda: replica.hub.is_linked)
        monkeypatch.setattr(hub_link, "decode_frame", lambda _data, _way: {}["bug"])
        await hub.say(Pong(1))
        with pytest.raises(KeyError):
            await asyncio.wait_for(replica.failed(), 20)
        await until(lambda: not replica.hub.is_linked)
        assert replica.hub.last_error is not None
        assert replica.hub.lasting_error is replica.hub.last_error
        assert replica.hub.last_error.reason == "INTERNAL"


async def test_digests_that_nobody_asked_about_make_a_client_send_nothing(
    tmp_path: Path, hub: LyingHub
) -> None:
    """Each made it send its heads, which may be thousands."""
    hub.lie = lambda m: (
        [Opened(m.conversation, OTHER, False, None, m.number)] * 500 if isinstance(m, Open) else []
    )
    async with owner(tmp_path, hub.address) as (replica, conversation):
        await until(lambda: replica.hub.refusal(conversation) is not None)
        await until(lambda: bool(hub.of(Open)))
        assert len(hub.of(Open)) == 1


async def test_a_hub_that_makes_a_client_send_more_than_it_reads_loses_the_link(
    tmp_path: Path, hub: LyingHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some bytes for each refused entry, of which the client says what is wrong with it."""
    monkeypatch.setattr(limits, "OUTBOX_BYTES_MAX", 100_000)
    async with owner(tmp_path, hub.address) as (replica, conversation):
        genesis = replica.shelf[conversation].log.entries[EntryId(conversation)]
        good = Writer(1, epoch=9).write(conversation, said("x"), parents=[genesis])
        refused = Entries(conversation, (replace(good, signature=bytes(64)),) * 500)
        hub.lie = lambda m: [refused] if isinstance(m, Ping | Open) else []
        await until(lambda: replica.hub.last_error is not None)
        assert replica.hub.last_error is not None
        assert replica.hub.last_error.reason == "SLOW_READER"
