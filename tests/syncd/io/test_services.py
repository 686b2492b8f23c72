"""Push, Watch, Fetch, Resolve, Delete, blobs and tickets, as called by a level-1 client."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from grpc_health.v1 import health_pb2, health_pb2_grpc

from antiphon.v1 import blob_pb2, sync_pb2
from replica.ids import ConversationId, EntryId, Track
from replica.io import rpc
from replica.limits import BURST_UNITS
from replica.link.auth import Authenticator
from replica.log.body import Grant, Member, Role
from replica.log.codec.entries import entry_from_pb, entry_to_pb
from replica.log.entry import Entry, entry_id
from replica.refusals import FrameTooLarge
from syncd.calls import queries
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.callers import ServedHub, refused, serve_hub, until
from tests.support.files import write_locked
from tests.support.hub_views import has_admitted
from tests.support.writers import Writer, said


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as built:
        yield built


async def test_pushed_entries_are_in_the_store(served: ServedHub):
    stored = (await served.hub.driver.store.load(served.id)).entries
    assert {e.id for e in stored} == {e.id for e in served.entries}


async def test_push_again_is_the_same_entry(served: ServedHub):
    outcome = await served.owner.calls.push(served.id, tuple(served.entries))
    assert outcome == {e.id: None for e in served.entries}
    assert len(served.hub.driver.hub.shelf[served.id].log) == 4


async def test_push_returns_an_outcome_per_entry(served: ServedHub):
    good = served.writer.write(served.id, said("good"), parents=[served.entries[-1]])
    late = served.writer.write(served.id, said("late"), parents=[good])
    forged = entry_to_pb(good)
    forged.signature = bytes(64)
    request = sync_pb2.PushRequest(conversation=served.id, entries=[forged, entry_to_pb(late)])
    response = await served.owner.sync.Push(request, metadata=served.owner.metadata)
    assert [o.durable for o in response.outcomes] == [False, False]
    assert [o.fault.reason for o in response.outcomes] == ["SIGNATURE_INVALID", "ENTRIES_MISSING"]
    assert list(response.outcomes[1].fault.missing) == [good.id]


async def test_push_answers_in_the_order_of_the_request(served: ServedHub):
    good = served.writer.write(served.id, said("good"), parents=[served.entries[-1]])
    broken = entry_to_pb(good)
    broken.header += b"\x00"
    request = sync_pb2.PushRequest(entries=[broken, entry_to_pb(good)])
    response = await served.owner.sync.Push(request, metadata=served.owner.metadata)
    assert [o.durable for o in response.outcomes] == [False, True]
    assert response.outcomes[1].id == good.id


@pytest.mark.parametrize("last", [60_000, 400_000], ids=["the hub's limit", "gRPC's limit"])
async def test_a_push_beyond_one_frame_is_refused_with_its_reason(served: ServedHub, last: int):
    parent = served.entries[-1]
    entries = []
    for size in (500_000, 500_000, last):
        parent = served.writer.write(served.id, said("x" * size), parents=[parent])
        entries.append(parent)
    with pytest.raises(FrameTooLarge):
        await served.owner.calls.push(served.id, tuple(entries))
    assert len(served.hub.driver.hub.shelf[served.id].log) == 4
    for entry in entries:
        assert await served.owner.calls.push(served.id, (entry,)) == {entry.id: None}


async def test_resolve_distinguishes_durable_from_unknown(served: ServedHub):
    assert (await served.owner.calls.resolve(served.id, served.entries[1].id)).fate == (
        sync_pb2.FATE_DURABLE
    )
    unsent = served.writer.write(served.id, said("unsent"), parents=[served.entries[-1]])
    assert (await served.owner.calls.resolve(served.id, unsent.id)).fate == sync_pb2.FATE_UNKNOWN


@pytest.mark.parametrize(
    "wrong", [{"ids": [b"1"]}, {"ranges": [sync_pb2.LaneRange(author=bytes(31), track=1)]}]
)
async def test_ids_of_another_width_are_refused_by_name(
    served: ServedHub, wrong: dict[str, list[object]]
):
    metadata = served.owner.metadata
    request = sync_pb2.FetchRequest(conversation=served.id, **wrong)  # type: ignore[arg-type]  # fields by name
    with pytest.raises(grpc.aio.AioRpcError, match="32 bytes"):
        _ = [r async for r in served.owner.sync.Fetch(request, metadata=metadata)]
    resolving = sync_pb2.ResolveRequest(conversation=served.id, id=b"1")
    assert await refused(served.owner.sync.Resolve(resolving, metadata=metadata)) == (
        "ARGUMENT_INVALID"
    )


async def test_ids_of_another_width_have_one_reason_in_all_calls(served: ServedHub):
    sync, metadata = served.owner.sync, served.owner.metadata
    entry = entry_to_pb(served.entries[-1])
    for pushed in ({"conversation": b"1", "entries": [entry]}, {"conversation": b"1"}, {}):
        request = sync_pb2.PushRequest(**pushed)  # type: ignore[arg-type]  # fields by name
        assert await refused(sync.Push(request, metadata=metadata)) == "ARGUMENT_INVALID"
    whole = {"author": bytes(32), "id": bytes(32), "epoch": 1, "track": 1}
    for wrong in ({"author": b"1"}, {"id": bytes(33)}):
        head = sync_pb2.LaneHead(**{**whole, **wrong})  # type: ignore[arg-type]  # fields by name
        watching = sync_pb2.WatchRequest(conversation=served.id, cursor=[head])
        assert await refused(sync.Watch(watching, metadata=metadata)) == "ARGUMENT_INVALID"


async def test_an_entry_of_a_reader_is_refused_and_its_fate_says_so(served: ServedHub):
    reader = Writer(77)
    role = Member(Grant(reader.public, Role.READER))
    grant = served.writer.write(served.id, role, parents=[served.genesis])
    entry = reader.write(served.id, said("x"), parents=[served.genesis])
    await served.owner.calls.push(served.id, (grant,))
    outcome = await served.owner.calls.push(served.id, (entry,))
    assert {fault and fault.reason for fault in outcome.values()} == {"ROLE_FORBIDS"}
    found = await served.owner.calls.resolve(served.id, entry.id)
    assert found.fate == sync_pb2.FATE_UNCOVERED


async def test_fetch_sends_ids_and_ranges_and_names_absent_ids(served: ServedHub):
    absent = bytes(32)
    request = sync_pb2.FetchRequest(
        conversation=served.id,
        ids=[served.genesis.id, absent],
        ranges=[
            sync_pb2.LaneRange(
                author=served.writer.public,
                epoch=served.writer.epoch,
                track=1,
                seq_start=1,
                seq_end=3,
            )
        ],
    )
    got = [r async for r in served.owner.sync.Fetch(request, metadata=served.owner.metadata)]
    entries = [entry_from_pb(e) for r in got for e in r.entries]
    assert [e.id for e in entries] == [
        served.genesis.id,
        served.entries[2].id,
        served.entries[3].id,
    ]
    assert list(got[-1].absent) == [absent]


async def test_only_what_is_durable_is_told_of(served: ServedHub):
    entry = served.writer.write(served.id, said("late"), parents=[served.entries[-1]])
    owner = served.owner
    async with write_locked(served.hub.driver.store):
        pushing = asyncio.create_task(owner.calls.push(served.id, (entry,)))
        await until(lambda: has_admitted(served, entry))
        resolving = asyncio.create_task(owner.calls.resolve(served.id, entry.id))
        fetching = asyncio.create_task(owner.calls.fetch(served.id, [entry.id]))
        for _ in range(3):  # these came later, and wait for nothing
            found = await owner.calls.resolve(served.id, EntryId(bytes(32)))
            assert found.fate == sync_pb2.FATE_UNKNOWN
        assert not resolving.done()
        assert not fetching.done()
    assert await pushing == {entry.id: None}
    assert (await resolving).fate == sync_pb2.FATE_DURABLE
    assert await fetching == [entry]


# --- what a conversation says of another ------------------------------------------------


@pytest.fixture
async def elsewhere(served: ServedHub) -> tuple[Entry, Entry]:
    """Let the stranger keep a conversation of its own at the hub; return its entries."""
    writer = Writer(9)
    genesis = writer.genesis()
    entry = writer.write(genesis.conversation, said("private"), parents=[genesis])
    pushed = await served.stranger.calls.push(genesis.conversation, (genesis, entry))
    assert set(pushed.values()) == {None}
    return genesis, entry


async def test_an_entry_of_another_conversation_is_unknown_to_a_member_of_this_one(
    served: ServedHub, elsewhere: tuple[Entry, Entry]
):
    for entry in elsewhere:
        found = await served.owner.calls.resolve(served.id, entry.id)
        assert (found.fate, list(found.missing)) == (sync_pb2.FATE_UNKNOWN, [])
    theirs = sync_pb2.ResolveRequest(conversation=elsewhere[0].id, id=elsewhere[1].id)
    call = served.owner.sync.Resolve(theirs, metadata=served.owner.metadata)
    assert await refused(call) == "CONVERSATION_NOT_FOUND"


async def test_no_entry_of_another_conversation_is_fetched_through_this_one(
    served: ServedHub, elsewhere: tuple[Entry, Entry]
):
    lane = elsewhere[1].header.lane
    range_ = sync_pb2.LaneRange(author=lane.author, epoch=lane.epoch, track=lane.track)
    request = sync_pb2.FetchRequest(
        conversation=served.id, ids=[entry.id for entry in elsewhere], ranges=[range_]
    )
    got = [r async for r in served.owner.sync.Fetch(request, metadata=served.owner.metadata)]
    assert [list(r.entries) for r in got] == [[]]
    assert list(got[0].absent) == sorted(entry.id for entry in elsewhere)


async def test_no_blob_of_another_conversation_is_read_through_this_one(
    served: ServedHub, elsewhere: tuple[Entry, Entry]
):
    data = b"private picture"
    digest, theirs = hashlib.sha256(data).digest(), served.stranger
    write = blob_pb2.WriteRequest(
        conversation=elsewhere[0].id, digest=digest, size_bytes=len(data), data=data
    )
    assert (await theirs.blobs.Write(iter([write]), metadata=theirs.metadata)).complete
    blobs, metadata = served.owner.blobs, served.owner.metadata
    stat = blob_pb2.StatRequest(conversation=served.id, digest=digest)
    assert await blobs.Stat(stat, metadata=metadata) == blob_pb2.StatResponse()
    read = blob_pb2.ReadRequest(conversation=served.id, digest=digest)
    assert await refused(blobs.Read(read, metadata=metadata)) == "BLOB_NOT_FOUND"
    read = blob_pb2.ReadRequest(conversation=elsewhere[0].id, digest=digest)
    assert await refused(blobs.Read(read, metadata=metadata)) == "CONVERSATION_NOT_FOUND"


async def test_headers_are_sent_without_bodies_on_request_except_control_kinds(served: ServedHub):
    request = sync_pb2.FetchRequest(
        conversation=served.id, ids=[e.id for e in served.entries], headers_only=True
    )
    got = [r async for r in served.owner.sync.Fetch(request, metadata=served.owner.metadata)]
    bodies = {bytes(e.header): e.HasField("body") for r in got for e in r.entries}
    assert bodies[served.genesis.header_bytes]
    assert not bodies[served.entries[1].header_bytes]


async def test_watch_sends_the_backlog_then_new_entries_each_with_a_hint(
    served: ServedHub,
):
    request = sync_pb2.WatchRequest(conversation=served.id)
    stream = served.owner.sync.Watch(request, metadata=served.owner.metadata)
    first = await stream.read()
    assert len(first.entries.entries) == 4
    hint = (await stream.read()).hint
    assert list(hint.parents) == [served.entries[-1].id]
    assert hint.lamport == served.entries[-1].header.lamport + 1
    await served.say("live")
    live = await stream.read()
    assert [entry_from_pb(e).id for e in live.entries.entries] == [served.entries[-1].id]
    stream.cancel()


async def test_watch_from_a_cursor_sends_only_new_entries(served: ServedHub):
    heads = served.hub.driver.hub.shelf[served.id].log.heads()
    from replica.link.codec import heads_to_pb

    request = sync_pb2.WatchRequest(conversation=served.id, cursor=heads_to_pb(heads))
    stream = served.owner.sync.Watch(request, metadata=served.owner.metadata)
    assert (await stream.read()).WhichOneof("event") == "hint"
    stream.cancel()


async def test_a_stranger_gets_the_answer_for_an_absent_conversation(served: ServedHub):
    for conversation in (served.id, bytes(32)):
        sync, metadata = served.stranger.sync, served.stranger.metadata
        calls = (
            sync.Resolve(
                sync_pb2.ResolveRequest(conversation=conversation, id=bytes(32)), metadata=metadata
            ),
            sync.Fetch(sync_pb2.FetchRequest(conversation=conversation), metadata=metadata),
            sync.Watch(sync_pb2.WatchRequest(conversation=conversation), metadata=metadata),
            sync.Delete(sync_pb2.DeleteRequest(conversation=conversation), metadata=metadata),
            served.stranger.blobs.Stat(
                blob_pb2.StatRequest(conversation=conversation, digest=bytes(32)),
                metadata=metadata,
            ),
        )
        assert [await refused(call) for call in calls] == ["CONVERSATION_NOT_FOUND"] * 5


async def test_without_a_valid_ticket_nothing_is_served(served: ServedHub):
    request = sync_pb2.ResolveRequest(conversation=served.id, id=bytes(32))
    key = Ed25519PrivateKey.generate()
    foreign = Authenticator(key, b"another secret")
    nonce = bytes(32)
    from replica.link.auth import prove

    challenge = foreign.challenge(served.writer.public, nonce, rpc.now_ms())
    proof = prove(
        served.writer.key, nonce, challenge, expected_server=foreign.public, now_ms=rpc.now_ms()
    )
    ticket = foreign.admit(
        served.writer.public, nonce, challenge.expire_time_ms, proof, rpc.now_ms()
    )
    for metadata in ((), ((rpc.TICKET_METADATA, b"x"),), ((rpc.TICKET_METADATA, ticket),)):
        assert await refused(served.owner.sync.Resolve(request, metadata=metadata)) == (
            "TICKET_INVALID"
        )


async def test_malformed_arguments_get_typed_answers(served: ServedHub):
    sync, metadata = served.owner.sync, served.owner.metadata
    raw = served.owner.calls.channel.unary_unary("/antiphon.v1.SyncService/Push")
    assert await refused(raw(b"\xff\xff\xff", metadata=metadata)) == "FRAME_MALFORMED"
    short = sync_pb2.ResolveRequest(conversation=b"short")
    assert await refused(sync.Resolve(short, metadata=metadata)) == "ARGUMENT_INVALID"
    many = sync_pb2.FetchRequest(conversation=served.id, ids=[bytes(32)] * 9000)
    assert await refused(sync.Fetch(many, metadata=metadata)) == "ARGUMENT_INVALID"


async def test_a_deleted_conversation_is_refused_from_then_on(served: ServedHub):
    assert await served.owner.calls.delete(served.id) == 4
    assert not await served.hub.driver.store.has(served.id)
    outcome = await served.owner.calls.push(served.id, tuple(served.entries))
    assert {f.reason for f in outcome.values() if f is not None} == {"CONVERSATION_DELETED"}
    assert len(outcome) == 4


async def test_a_blob_is_written_in_pieces_and_read_from_an_offset(served: ServedHub):
    data = bytes(range(256)) * 2000
    digest = hashlib.sha256(data).digest()
    blobs, metadata = served.owner.blobs, served.owner.metadata

    async def write(offset: int, stop: int) -> blob_pb2.WriteResponse:
        first = blob_pb2.WriteRequest(
            conversation=served.id, digest=digest, size_bytes=len(data), offset=offset
        )
        pieces = range(offset, stop, 100_000)
        requests = [
            first,
            *(blob_pb2.WriteRequest(data=data[at : min(at + 100_000, stop)]) for at in pieces),
        ]
        return await blobs.Write(iter(requests), metadata=metadata)

    assert (await write(0, 200_000)).committed_bytes == 200_000
    stat = blob_pb2.StatRequest(conversation=served.id, digest=digest)
    assert (await blobs.Stat(stat, metadata=metadata)).committed_bytes == 200_000
    assert await refused(write(100_000, 200_000)) == "BLOB_OFFSET_INVALID"
    done = await write(200_000, len(data))
    assert done.complete
    read = blob_pb2.ReadRequest(conversation=served.id, digest=digest, offset=1000)
    got = [r.data async for r in blobs.Read(read, metadata=metadata)]
    assert b"".join(got) == data[1000:]


async def test_bytes_that_do_not_match_their_digest_are_never_served(served: ServedHub):
    digest = hashlib.sha256(b"right").digest()
    blobs, metadata = served.owner.blobs, served.owner.metadata
    request = blob_pb2.WriteRequest(
        conversation=served.id, digest=digest, size_bytes=5, data=b"wrong"
    )
    assert await refused(blobs.Write(iter([request]), metadata=metadata)) == "BLOB_DIGEST_MISMATCH"
    read = blob_pb2.ReadRequest(conversation=served.id, digest=digest)
    assert await refused(blobs.Read(read, metadata=metadata)) == "BLOB_NOT_FOUND"


async def test_the_health_service_reports_serving(served: ServedHub):
    stub = health_pb2_grpc.HealthStub(served.owner.calls.channel)
    for service in ("", "antiphon.v1.SyncService", "antiphon.v1.BlobService"):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_restarted_hub_serves_acked_entries(served: ServedHub, tmp_path: Path):
    await served.hub.stop()
    again = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    try:
        assert again.key == served.hub.key
        log = again.driver.hub.shelf[served.id].log
        assert log.entries.keys() == {e.id for e in served.entries}
    finally:
        await again.stop()


async def test_the_call_hosts_is_charged_to_its_caller(served: ServedHub):
    throttle, unknown = served.hub.driver.throttle, ConversationId(bytes(32))
    throttle.charge(Writer(9).public, unknown, sent_bytes=500 * BURST_UNITS)
    request = sync_pb2.HostsRequest()
    call = served.stranger.sync.Hosts(request, metadata=served.stranger.metadata)
    assert await refused(call) == "RATE_LIMITED"
    await served.owner.sync.Hosts(request, metadata=served.owner.metadata)


async def test_a_watch_of_the_heaviest_key_is_told_when_to_come_again(served: ServedHub):
    """Each sends a piece of the log at once, so without a wait it could be called in a loop."""
    throttle = served.hub.driver.throttle
    throttle.charge(served.writer.public, served.id, sent_bytes=500 * BURST_UNITS)
    request = sync_pb2.WatchRequest(conversation=served.id)
    call = served.owner.sync.Watch(request, metadata=served.owner.metadata)
    assert await refused(call) == "RATE_LIMITED"
    assert not served.hub.driver.hub.links
    stranger = served.stranger.sync.Watch(request, metadata=served.stranger.metadata)
    assert await refused(stranger) == "CONVERSATION_NOT_FOUND"


async def test_a_hub_runs_with_any_bound_of_links_that_its_operator_states(tmp_path: Path) -> None:
    async with serve_hub(tmp_path, links_per_key_max=2**31) as served:
        await served.say("still here")


async def test_the_end_of_a_forked_lane_is_fetched_behind_all_that_is_passed_over(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PASSED_MAX", 4)
    writer, parents = Writer(1, epoch=50), [served.genesis]
    twin = writer.restored()
    lane = [writer.write(served.id, said(str(n)), parents=parents) for n in range(30)]
    fork = twin.write(served.id, said("fork"), parents=parents)
    await served.owner.calls.push(served.id, (*lane, fork))
    at = lane[0].header.lane
    ends = [
        sync_pb2.LaneRange(
            author=at.author, epoch=at.epoch, track=Track.CONVERSATION, seq_start=a, seq_end=b
        )
        for a, b in ((0, 1), (29, 30))
    ]
    request = sync_pb2.FetchRequest(conversation=served.id, ranges=ends)
    found = [
        entry_id(entry.header)
        async for response in served.owner.sync.Fetch(request, metadata=served.owner.metadata)
        for entry in response.entries
    ]
    assert set(found) == {lane[0].id, fork.id, lane[29].id}
