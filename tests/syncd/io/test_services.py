"""Push, Watch, Fetch, Resolve, Delete, blobs and tickets, as a small client speaks them."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from grpc_health.v1 import health_pb2, health_pb2_grpc

from antiphon.v1 import blob_pb2, sync_pb2
from replica.io import rpc
from replica.link.auth import Doorkeeper
from replica.log.codec.entries import entry_from_pb, entry_to_pb
from replica.refusals import FrameTooLarge
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.callers import CallersTown as Town
from tests.support.callers import refused, town_in
from tests.support.writers import said


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with town_in(tmp_path) as built:
        yield built


async def test_what_push_acknowledged_is_in_the_store(town: Town):
    stored = (await town.hub.driver.store.load(town.id)).entries
    assert {e.id for e in stored} == {e.id for e in town.entries}


async def test_push_again_is_the_same_entry(town: Town):
    outcome = await town.owner.calls.push(town.id, tuple(town.entries))
    assert outcome == {e.id: None for e in town.entries}
    assert len(town.hub.driver.hub.shelf[town.id].log) == 4


async def test_push_tells_each_entry_its_own_fate(town: Town):
    good = town.writer.write(town.id, said("good"), parents=[town.entries[-1]])
    late = town.writer.write(town.id, said("late"), parents=[good])
    forged = entry_to_pb(good)
    forged.signature = bytes(64)
    request = sync_pb2.PushRequest(conversation=town.id, entries=[forged, entry_to_pb(late)])
    response = await town.owner.sync.Push(request, metadata=town.owner.metadata)
    assert [o.durable for o in response.outcomes] == [False, False]
    assert [o.fault.reason for o in response.outcomes] == ["SIGNATURE_INVALID", "ENTRIES_MISSING"]
    assert list(response.outcomes[1].fault.missing) == [good.id]


async def test_push_answers_in_the_order_of_the_request(town: Town):
    good = town.writer.write(town.id, said("good"), parents=[town.entries[-1]])
    broken = entry_to_pb(good)
    broken.header += b"\x00"
    request = sync_pb2.PushRequest(entries=[broken, entry_to_pb(good)])
    response = await town.owner.sync.Push(request, metadata=town.owner.metadata)
    assert [o.durable for o in response.outcomes] == [False, True]
    assert response.outcomes[1].id == good.id


@pytest.mark.parametrize("last", [60_000, 400_000], ids=["the hub's limit", "gRPC's limit"])
async def test_a_push_beyond_one_frame_is_refused_with_its_reason(town: Town, last: int):
    parent = town.entries[-1]
    entries = []
    for size in (500_000, 500_000, last):
        parent = town.writer.write(town.id, said("x" * size), parents=[parent])
        entries.append(parent)
    with pytest.raises(FrameTooLarge):
        await town.owner.calls.push(town.id, tuple(entries))
    assert len(town.hub.driver.hub.shelf[town.id].log) == 4
    for entry in entries:
        assert await town.owner.calls.push(town.id, (entry,)) == {entry.id: None}


async def test_resolve_tells_durable_from_unknown(town: Town):
    assert (await town.owner.calls.resolve(town.id, town.entries[1].id)).fate == (
        sync_pb2.FATE_DURABLE
    )
    unsent = town.writer.write(town.id, said("unsent"), parents=[town.entries[-1]])
    assert (await town.owner.calls.resolve(town.id, unsent.id)).fate == sync_pb2.FATE_UNKNOWN


async def test_fetch_sends_ids_and_ranges_and_names_what_is_absent(town: Town):
    absent = bytes(32)
    request = sync_pb2.FetchRequest(
        conversation=town.id,
        ids=[town.genesis.id, absent],
        ranges=[
            sync_pb2.LaneRange(
                author=town.writer.public, epoch=town.writer.epoch, track=1, seq_start=1, seq_end=3
            )
        ],
    )
    got = [r async for r in town.owner.sync.Fetch(request, metadata=town.owner.metadata)]
    entries = [entry_from_pb(e) for r in got for e in r.entries]
    assert [e.id for e in entries] == [town.genesis.id, town.entries[2].id, town.entries[3].id]
    assert list(got[-1].absent) == [absent]


async def test_headers_travel_without_bodies_where_asked_but_for_control_kinds(town: Town):
    request = sync_pb2.FetchRequest(
        conversation=town.id, ids=[e.id for e in town.entries], headers_only=True
    )
    got = [r async for r in town.owner.sync.Fetch(request, metadata=town.owner.metadata)]
    bodies = {bytes(e.header): e.HasField("body") for r in got for e in r.entries}
    assert bodies[town.genesis.header_bytes]
    assert not bodies[town.entries[1].header_bytes]


async def test_watch_sends_the_backlog_then_what_comes_with_a_hint_for_the_next_append(town: Town):
    request = sync_pb2.WatchRequest(conversation=town.id)
    stream = town.owner.sync.Watch(request, metadata=town.owner.metadata)
    first = await stream.read()
    assert len(first.entries.entries) == 4
    hint = (await stream.read()).hint
    assert list(hint.parents) == [town.entries[-1].id]
    assert hint.lamport == town.entries[-1].header.lamport + 1
    await town.say("live")
    live = await stream.read()
    assert [entry_from_pb(e).id for e in live.entries.entries] == [town.entries[-1].id]
    stream.cancel()


async def test_watch_from_a_cursor_sends_only_what_is_new(town: Town):
    heads = town.hub.driver.hub.shelf[town.id].log.heads()
    from replica.link.codec import heads_to_pb

    request = sync_pb2.WatchRequest(conversation=town.id, cursor=heads_to_pb(heads))
    stream = town.owner.sync.Watch(request, metadata=town.owner.metadata)
    assert (await stream.read()).WhichOneof("event") == "hint"
    stream.cancel()


async def test_a_stranger_hears_the_same_as_of_no_conversation(town: Town):
    for conversation in (town.id, bytes(32)):
        sync, metadata = town.stranger.sync, town.stranger.metadata
        calls = (
            sync.Resolve(
                sync_pb2.ResolveRequest(conversation=conversation, id=bytes(32)), metadata=metadata
            ),
            sync.Fetch(sync_pb2.FetchRequest(conversation=conversation), metadata=metadata),
            sync.Watch(sync_pb2.WatchRequest(conversation=conversation), metadata=metadata),
            sync.Delete(sync_pb2.DeleteRequest(conversation=conversation), metadata=metadata),
            town.stranger.blobs.Stat(
                blob_pb2.StatRequest(conversation=conversation, digest=bytes(32)),
                metadata=metadata,
            ),
        )
        assert [await refused(call) for call in calls] == ["CONVERSATION_NOT_FOUND"] * 5


async def test_without_a_valid_ticket_nothing_is_served(town: Town):
    request = sync_pb2.ResolveRequest(conversation=town.id, id=bytes(32))
    key = Ed25519PrivateKey.generate()
    foreign = Doorkeeper(key, b"another secret")
    nonce = bytes(32)
    from replica.link.auth import prove

    challenge = foreign.challenge(town.writer.public, nonce, rpc.now_ms())
    proof = prove(
        town.writer.key, nonce, challenge, expected_server=foreign.public, now_ms=rpc.now_ms()
    )
    ticket = foreign.admit(town.writer.public, nonce, challenge.expire_time_ms, proof, rpc.now_ms())
    for metadata in ((), ((rpc.TICKET_METADATA, b"x"),), ((rpc.TICKET_METADATA, ticket),)):
        assert await refused(town.owner.sync.Resolve(request, metadata=metadata)) == (
            "TICKET_INVALID"
        )


async def test_malformed_arguments_get_typed_answers(town: Town):
    sync, metadata = town.owner.sync, town.owner.metadata
    raw = town.owner.calls.channel.unary_unary("/antiphon.v1.SyncService/Push")
    assert await refused(raw(b"\xff\xff\xff", metadata=metadata)) == "FRAME_MALFORMED"
    short = sync_pb2.ResolveRequest(conversation=b"short")
    assert await refused(sync.Resolve(short, metadata=metadata)) == "ARGUMENT_INVALID"
    many = sync_pb2.FetchRequest(conversation=town.id, ids=[bytes(32)] * 9000)
    assert await refused(sync.Fetch(many, metadata=metadata)) == "ARGUMENT_INVALID"


async def test_a_deleted_conversation_is_gone_and_is_not_taken_back(town: Town):
    assert await town.owner.calls.delete(town.id) == 4
    assert not await town.hub.driver.store.has(town.id)
    outcome = await town.owner.calls.push(town.id, tuple(town.entries))
    assert {f.reason for f in outcome.values() if f is not None} == {"CONVERSATION_DELETED"}
    assert len(outcome) == 4


async def test_a_blob_is_written_in_pieces_and_read_from_an_offset(town: Town):
    data = bytes(range(256)) * 2000
    digest = hashlib.sha256(data).digest()
    blobs, metadata = town.owner.blobs, town.owner.metadata

    async def write(offset: int, stop: int) -> blob_pb2.WriteResponse:
        first = blob_pb2.WriteRequest(
            conversation=town.id, digest=digest, size_bytes=len(data), offset=offset
        )
        pieces = range(offset, stop, 100_000)
        requests = [
            first,
            *(blob_pb2.WriteRequest(data=data[at : min(at + 100_000, stop)]) for at in pieces),
        ]
        return await blobs.Write(iter(requests), metadata=metadata)

    assert (await write(0, 200_000)).committed_bytes == 200_000
    stat = blob_pb2.StatRequest(conversation=town.id, digest=digest)
    assert (await blobs.Stat(stat, metadata=metadata)).committed_bytes == 200_000
    assert await refused(write(100_000, 200_000)) == "BLOB_OFFSET_INVALID"
    done = await write(200_000, len(data))
    assert done.complete
    read = blob_pb2.ReadRequest(conversation=town.id, digest=digest, offset=1000)
    got = [r.data async for r in blobs.Read(read, metadata=metadata)]
    assert b"".join(got) == data[1000:]


async def test_bytes_that_do_not_match_their_digest_are_never_served(town: Town):
    digest = hashlib.sha256(b"right").digest()
    blobs, metadata = town.owner.blobs, town.owner.metadata
    request = blob_pb2.WriteRequest(
        conversation=town.id, digest=digest, size_bytes=5, data=b"wrong"
    )
    assert await refused(blobs.Write(iter([request]), metadata=metadata)) == "BLOB_DIGEST_MISMATCH"
    read = blob_pb2.ReadRequest(conversation=town.id, digest=digest)
    assert await refused(blobs.Read(read, metadata=metadata)) == "BLOB_NOT_FOUND"


async def test_health_says_serving(town: Town):
    stub = health_pb2_grpc.HealthStub(town.owner.calls.channel)
    for service in ("", "antiphon.v1.SyncService", "antiphon.v1.BlobService"):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_restarted_hub_serves_what_it_acknowledged(town: Town, tmp_path: Path):
    await town.hub.stop()
    again = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    try:
        assert again.key == town.hub.key
        log = again.driver.hub.shelf[town.id].log
        assert log.entries.keys() == {e.id for e in town.entries}
    finally:
        await again.stop()
