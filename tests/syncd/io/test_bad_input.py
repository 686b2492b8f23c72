"""Bad entries and frames at a real hub: refused with a reason, and nothing else is lost."""

import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest

from antiphon.v1 import blob_pb2, log_pb2, sync_pb2
from replica import limits, refusals
from replica.errors import EntryRefused
from replica.ids import ConversationId, EntryId
from replica.io import status
from replica.io.store.store import Store
from replica.link.messages import Ack, Close, Entries, Fault, Ping, Pong
from replica.link.steps import STEP_ENTRIES, Steps
from replica.log.codec.entries import entry_from_pb, entry_to_pb
from replica.log.entry import Entry, entry_id
from replica.refusals import (
    BodyTooLarge,
    ConversationUnknown,
    EntriesMissing,
    FrameMalformed,
    FrameTooLarge,
    HeaderTooLarge,
)
from spec.vectors.make.build import Key
from syncd.calls.pushed import for_push
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.callers import Caller, ServedHub, serve_hub
from tests.support.hub_views import next_message, next_of, open_link, stored
from tests.support.writers import Writer, said

VECTORS = json.loads((Path(__file__).parents[3] / "spec/vectors/admission.json").read_text())
REFUSED = [v for v in VECTORS["vectors"] if v["verdict"] == "refused"]
NEXT_STEPS = {
    kind.reason: kind.next_step
    for kind in EntryRefused.__subclasses__()
    if kind.__module__ == refusals.__name__
}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as built:
        yield built


def raw_entry(name: str) -> log_pb2.Entry:
    """Return the bytes of a vector's entry, valid or not."""
    raw = VECTORS["entries"][name]
    entry = log_pb2.Entry(
        header=bytes.fromhex(raw["header"]), signature=bytes.fromhex(raw["signature"])
    )
    if raw["body"] is not None:
        entry.body = bytes.fromhex(raw["body"])
    return entry


def id_of(name: str) -> EntryId:
    return EntryId(bytes.fromhex(VECTORS["entries"][name]["id"]))


def frame(conversation: ConversationId, entries: Iterable[log_pb2.Entry]) -> bytes:
    raw = sync_pb2.Entries(conversation=conversation, entries=entries)
    return sync_pb2.LinkRequest(entries=raw).SerializeToString()


class Book:
    """The conversation of the vectors at a real hub, with its owner and sound entries to add."""

    def __init__(self, owner: Caller, store: Store) -> None:
        self.owner, self.store = owner, store
        self.id = ConversationId(id_of("genesis"))
        self.genesis = entry_from_pb(raw_entry("genesis"))
        self._epoch = 1000

    def sound(self) -> Entry:
        """Write an entry by the owner, alone in its lane."""
        self._epoch += 1
        writer = Writer(1, self._epoch)
        writer.key = Key("ada").private
        writer.public = self.genesis.header.author
        return writer.write(self.id, said("sound"), parents=[self.genesis])

    async def stored(self) -> dict[EntryId, bytes]:
        """Return the bodies stored, by entry; a missing one is empty."""
        return {entry.id: entry.body or b"" for entry in (await self.store.load(self.id)).entries}

    async def check_stored(self, sound: set[EntryId]) -> None:
        """Check that sound entries are stored, and refused ones are not."""
        stored = await self.stored()
        assert sound <= stored.keys()
        refused = {(id_of(v["entry"]), raw_entry(v["entry"]).body) for v in REFUSED}
        assert refused.isdisjoint(stored.items())


@pytest.fixture
async def book(tmp_path: Path) -> AsyncIterator[Book]:
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    async with await Store.open(tmp_path / "pins.db") as pins:
        owner = await Caller(hub.address, pins, Key("ada").private).enter()
        made = Book(owner, hub.driver.store)
        refused = [raw_entry(vector["entry"]) for vector in REFUSED]
        given = dict.fromkeys(name for vector in REFUSED for name in vector["given"])
        # One is given before what it names: there it waits, and here it would be refused.
        entries = [entry for entry in map(raw_entry, given) if entry not in refused]
        request = sync_pb2.PushRequest(conversation=made.id, entries=entries)
        response = await owner.sync.Push(request, metadata=owner.metadata)
        assert all(outcome.durable for outcome in response.outcomes)
        yield made
        await owner.calls.close()
    await hub.stop()


async def test_a_bad_entry_on_a_link_affects_neither_other_entries_nor_the_link(book: Book):
    link = await open_link(book.owner, book.id)
    await next_of(link, Entries)
    found, sound = {}, set()
    for vector in (v for v in REFUSED if v["given"]):
        pair = book.sound(), book.sound()
        sound |= {entry.id for entry in pair}
        before, after = map(entry_to_pb, pair)
        await link.call.write(frame(book.id, (before, raw_entry(vector["entry"]), after)))
        fault = await next_of(link, Fault)
        await next_of(link, Ack)
        found[vector["name"]] = (fault.reason, fault.entry, fault.next_step)
        assert fault.detail
    assert found == {
        v["name"]: (v["reason"], id_of(v["entry"]), NEXT_STEPS[v["reason"]])
        for v in REFUSED
        if v["given"]
    }
    await book.check_stored(sound)


async def test_each_bad_entry_of_a_push_is_refused_alone(book: Book):
    found, sound = {}, set()
    for vector in (v for v in REFUSED if v["given"]):
        pair = book.sound(), book.sound()
        sound |= {entry.id for entry in pair}
        before, after = map(entry_to_pb, pair)
        entries = (before, raw_entry(vector["entry"]), after)
        request = sync_pb2.PushRequest(conversation=book.id, entries=entries)
        response = await book.owner.sync.Push(request, metadata=book.owner.metadata)
        outcomes = {outcome.id: outcome for outcome in response.outcomes}
        assert all(outcomes[entry.id].durable for entry in pair)
        fault = outcomes[id_of(vector["entry"])].fault
        found[vector["name"]] = (fault.reason, fault.next_step)
    assert found == {
        v["name"]: (
            v["reason"],
            for_push(Fault(v["reason"], next_step=NEXT_STEPS[v["reason"]])).next_step,
        )
        for v in REFUSED
        if v["given"]
    }
    await book.check_stored(sound)


async def test_a_conversation_with_a_bad_genesis_never_begins(book: Book):
    for vector in (v for v in REFUSED if not v["given"]):
        bad = raw_entry(vector["entry"])
        conversation = id_of(vector["entry"])
        request = sync_pb2.PushRequest(conversation=conversation, entries=[bad])
        (outcome,) = (await book.owner.sync.Push(request, metadata=book.owner.metadata)).outcomes
        # The refusal of non-members, since no conversation begins.
        assert not outcome.durable
        assert outcome.fault.reason == ConversationUnknown.reason
        assert outcome.fault.next_step == ConversationUnknown.next_step
        assert not await book.store.has(ConversationId(conversation))
    assert book.genesis.id in await book.stored()


async def test_an_entry_with_an_unknown_parent_is_pending_and_the_parent_named(served: ServedHub):
    parent = served.writer.write(served.id, said("1"), parents=[served.entries[-1]])
    child = served.writer.write(served.id, said("2"), parents=[parent])
    link = await open_link(served.owner, served.id)
    await link.send(Entries(served.id, (child,)))
    fault = await next_of(link, Fault)
    assert (fault.reason, fault.next_step) == (EntriesMissing.reason, EntriesMissing.next_step)
    assert fault.missing == (parent.id,)
    assert fault.retryable
    await link.send(Entries(served.id, (parent,)))
    await next_of(link, Ack)
    assert (await stored(served))[-2:] == [parent, child]


async def test_a_body_or_header_too_large_on_the_wire_is_refused_alone(served: ServedHub):
    entry = served.writer.write(served.id, said("x"), parents=[served.genesis])
    for kind, changed in (
        (BodyTooLarge, {"body": bytes(limits.BODY_BYTES_MAX + 1)}),
        (HeaderTooLarge, {"header": bytes(limits.HEADER_BYTES_MAX + 1)}),
    ):
        bad = entry_to_pb(entry)
        for name, value in changed.items():
            setattr(bad, name, value)
        request = sync_pb2.PushRequest(conversation=served.id, entries=[bad])
        (outcome,) = (
            await served.owner.sync.Push(request, metadata=served.owner.metadata)
        ).outcomes
        assert (outcome.fault.reason, outcome.fault.next_step) == (kind.reason, kind.next_step)
    assert await served.owner.calls.push(served.id, (entry,)) == {entry.id: None}


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (bytes(limits.FRAME_BYTES_MAX + 1), FrameTooLarge),
        (b"\xff\xff\xff", FrameMalformed),
        (b"", FrameMalformed),
    ],
    ids=["too large", "not a frame", "empty"],
)
async def test_a_frame_that_can_not_be_read_ends_the_link_with_its_reason(
    served: ServedHub, data: bytes, kind: type[FrameTooLarge | FrameMalformed]
):
    entry = next_message(served, "before the bad frame")
    link = await open_link(served.owner, served.id)
    await link.send(Entries(served.id, (entry,)))
    await link.call.write(data)
    close = await next_of(link, Close)
    assert close.conversation is None
    assert close.fault is not None
    assert (close.fault.reason, close.fault.next_step) == (kind.reason, kind.next_step)
    assert await link.read() is None
    # Entries before it are kept, and the next link works.
    again = await open_link(served.owner, served.id)
    assert (await next_of(again, Entries)).entries[-1] == entry
    await again.send(Entries(served.id, (next_message(served, "after"),)))
    await next_of(again, Ack)


async def test_a_frame_that_grpc_itself_refuses_ends_its_own_call_only(served: ServedHub):
    # Our own clients never send one; the transport's limit is a little above the frame's.
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(served.hub.address, options=options) as channel:
        push = channel.unary_unary("/antiphon.v1.SyncService/Push")
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await push(bytes(2 * limits.FRAME_BYTES_MAX), metadata=served.owner.metadata)
        assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    await served.say("still here")
    assert (await stored(served))[-1] == served.entries[-1]


async def test_damaged_requests_are_answered_or_refused_with_a_reason(served: ServedHub):
    ids = [served.entries[1].id]
    lane = sync_pb2.LaneRange(author=served.writer.public, epoch=1, track=1, seq_end=2**63)
    good: dict[str, Any] = {
        "Sync/Authenticate": sync_pb2.AuthenticateRequest(client_key=bytes(32)),
        "Sync/Push": sync_pb2.PushRequest(entries=[entry_to_pb(served.entries[1])]),
        "Sync/Resolve": sync_pb2.ResolveRequest(conversation=served.id, id=ids[0]),
        "Sync/Fetch": sync_pb2.FetchRequest(conversation=served.id, ids=ids, ranges=[lane]),
        "Sync/Delete": sync_pb2.DeleteRequest(conversation=bytes(32)),
        "Blob/Stat": blob_pb2.StatRequest(conversation=served.id, digest=bytes(32)),
        "Blob/Read": blob_pb2.ReadRequest(conversation=served.id, digest=bytes(32)),
    }
    chance, channel = random.Random(7), served.owner.calls.channel
    refused: Counter[str] = Counter()
    for name, request in good.items():
        method = "/antiphon.v1." + name.replace("/", "Service/")
        streams = name in ("Sync/Fetch", "Blob/Read")
        begin = (channel.unary_stream if streams else channel.unary_unary)(method)
        for _ in range(60):
            data = bytearray(request.SerializeToString())
            data[chance.randrange(len(data))] = chance.randrange(256)
            call = begin(bytes(data), metadata=served.owner.metadata)
            try:
                await (call.read() if streams else call)
            except grpc.aio.AioRpcError as error:
                assert status.from_rpc_error(error).reason != "HUB_UNREACHABLE", error
                assert error.code() not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
                refused[name] += 1
    # LINK-80: a Push is answered in outcomes, unless its frame itself is damaged.
    assert refused.keys() | {"Sync/Push"} == good.keys()
    assert await stored(served) == served.entries


async def test_a_stranger_on_a_link_learns_nothing_and_keeps_its_link(served: ServedHub):
    writer = Writer(9)
    entry = writer.write(served.id, said("let me in"), parents=[served.genesis])
    before = await stored(served)
    faults = []
    for conversation in (served.id, ConversationId(bytes(32))):
        link = await open_link(served.stranger, conversation)
        faults.append(await next_of(link, Fault))
        await link.call.write(frame(conversation, [entry_to_pb(entry)]))
        faults.append(await next_of(link, Fault))
        await link.send(Ping(1))
        await next_of(link, Pong)
    for fault in faults:
        assert fault.reason == ConversationUnknown.reason
        assert fault.next_step == ConversationUnknown.next_step
    assert await stored(served) == before


async def test_an_entry_of_an_unknown_kind_is_passed_on_unchanged(served: ServedHub):
    odd = served.writer.write(served.id, said("from the future"), parents=[served.genesis], kind=99)
    reader = await open_link(served.owner, served.id)
    await next_of(reader, Entries)
    assert await served.owner.calls.push(served.id, (odd,)) == {odd.id: None}
    assert (await next_of(reader, Entries)).entries == (odd,)
    assert await served.owner.calls.fetch(served.id, [odd.id]) == [odd]
    assert odd in await stored(served)
    # The conversation goes on after it.
    served.entries.append(odd)
    await served.say("still here")


async def test_a_push_of_which_no_entry_can_be_read_is_answered_in_steps(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
):
    pacer, pauses = served.hub.driver.pacer, 0
    in_steps = pacer.in_steps

    def counted(steps: Steps[Any]) -> Steps[Any]:
        nonlocal pauses
        while True:
            try:
                yield next(steps)
            except StopIteration as done:
                return done.value
            pauses += 1

    monkeypatch.setattr(pacer, "in_steps", lambda steps, key: in_steps(counted(steps), key))
    entries = [log_pb2.Entry(header=b"?%d" % number) for number in range(4 * STEP_ENTRIES)]
    request = sync_pb2.PushRequest(entries=entries)
    response = await served.stranger.sync.Push(request, metadata=served.stranger.metadata)
    assert [o.id for o in response.outcomes] == [entry_id(entry.header) for entry in entries]
    assert {o.fault.reason for o in response.outcomes} == {"WIRE_MALFORMED"}
    assert pauses >= 3 * 4  # to find that none can be read, to name each, and to encode that


async def test_a_push_of_which_no_entry_can_be_read_is_charged(served: ServedHub):
    request = sync_pb2.PushRequest(entries=[log_pb2.Entry(header=b"?")])
    push, metadata = served.stranger.sync.Push, served.stranger.metadata
    await push(request, metadata=metadata)
    unknown = ConversationId(bytes(32))
    served.hub.driver.throttle.charge(
        Writer(9).public, unknown, sent_bytes=500 * limits.BURST_UNITS
    )
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await push(request, metadata=metadata)
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
