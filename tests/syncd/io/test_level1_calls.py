"""Push, Hosts and Watch as a client without a store calls them (spec/04-link §9)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.rpc import error_details_pb2

from antiphon.v1 import log_pb2, sync_pb2
from replica import limits
from replica.ids import ConversationId
from replica.io import rpc
from replica.io.serving.status import status_of
from replica.link.codec import entries_to_pb
from replica.link.frame import Frame
from replica.link.messages import Entries, Hello, HostInfo, Pong, ProfileInfo
from replica.log.body import Request, Sampling
from replica.log.codec.entries import entry_to_pb
from replica.refusals import BodyMissing, EntriesMissing
from syncd.io.service import _watch_response, entries_response
from tests.support.callers import Caller, ServedHub, serve_hub, until
from tests.support.files import write_locked
from tests.support.writers import Writer, said

HOST = Writer(6)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path, host_keys=(HOST.public.hex(),)) as hub:
        yield hub


async def push(caller: Caller, request: sync_pb2.PushRequest) -> list[sync_pb2.PushOutcome]:
    response = await caller.sync.Push(request, metadata=caller.metadata)
    return list(response.outcomes)


async def test_a_push_that_nobody_can_read_is_answered_per_entry(served: ServedHub) -> None:
    torn = [log_pb2.Entry(header=b"\x90\x00\x05"), log_pb2.Entry(header=b"")]
    for conversation in (b"", served.id):
        request = sync_pb2.PushRequest(conversation=conversation, entries=torn)
        outcomes = await push(served.owner, request)
        assert [o.durable for o in outcomes] == [False, False]
        assert [o.fault.reason for o in outcomes] == ["WIRE_MALFORMED", "FIELD_INVALID"]


async def test_a_push_says_that_it_keeps_nothing_pending(served: ServedHub) -> None:
    skipped = served.writer.write(served.id, said("not sent"), parents=[served.genesis])
    entry = served.writer.write(served.id, said("follows it"), parents=[skipped])
    request = sync_pb2.PushRequest(entries=[entry_to_pb(entry)])
    (outcome,) = await push(served.owner, request)
    assert outcome.fault.reason == "ENTRIES_MISSING"
    assert list(outcome.fault.missing) == [skipped.id]
    assert "a Push keeps nothing" in outcome.fault.next_step


async def test_a_durable_request_that_nobody_will_answer_has_a_warning(served: ServedHub) -> None:
    body = Request(HOST.public, Sampling())
    entry = served.writer.write(served.id, body, parents=[served.genesis])
    request = sync_pb2.PushRequest(entries=[entry_to_pb(entry)])
    (outcome,) = await push(served.owner, request)
    assert outcome.durable
    assert not outcome.HasField("fault")
    assert outcome.warning.reason == "HOST_UNGRANTED"
    assert outcome.warning.entry == entry.id


async def test_a_warning_comes_also_where_the_conversation_leaves_memory(tmp_path: Path) -> None:
    """One commit makes both durable, and then only one of them has room (LINK-35, LINK-86)."""
    async with serve_hub(tmp_path, conversations_in_memory_max=1) as served:
        other = Writer(1, epoch=2)
        genesis = other.genesis()
        await served.owner.calls.push(ConversationId(genesis.id), (genesis,))
        body = Request(HOST.public, Sampling())
        requests = [
            writer.write(ConversationId(at.id), body, parents=[at])
            for writer, at in ((served.writer, served.genesis), (other, genesis))
        ]
        async with write_locked(served.hub.driver.store):
            performer, pushes = served.hub.driver.performer, []
            for count, entry in enumerate(requests, 1):
                request = sync_pb2.PushRequest(entries=[entry_to_pb(entry)])
                pushes.append(asyncio.create_task(push(served.owner, request)))
                await until(lambda count=count: len(performer.writing) == count)
        for (outcome,) in await asyncio.gather(*pushes):
            assert outcome.warning.reason == "HOST_UNGRANTED"
        await until(lambda: len(served.hub.driver.hub.shelf) == 1)


async def test_hosts_names_what_a_welcome_names(served: ServedHub) -> None:
    empty = await served.stranger.sync.Hosts(
        sync_pb2.HostsRequest(), metadata=served.stranger.metadata
    )
    assert not empty.hosts
    link = served.stranger.link()
    info = HostInfo(Writer(9).public, "", (ProfileInfo(bytes(32), "p", 1),))
    await link.send(Hello((1,), host=info))
    await link.read()
    found = await served.owner.sync.Hosts(sync_pb2.HostsRequest(), metadata=served.owner.metadata)
    assert [(host.info.key, host.vouched) for host in found.hosts] == [(info.key, False)]
    link.call.cancel()


def test_a_watcher_gets_the_answer_to_its_heartbeat_as_a_beat() -> None:
    assert (
        _watch_response(Pong(0)) == sync_pb2.WatchResponse(beat=sync_pb2.Beat()).SerializeToString()
    )


def test_a_watcher_s_entries_are_the_bytes_of_a_link_s_frame() -> None:
    writer = Writer(1)
    genesis = writer.genesis()
    line = [genesis, writer.write(genesis.conversation, said("x" * 1_000), parents=[genesis])]
    for entries in ([], line):
        message = Entries(genesis.conversation, tuple(entries))
        expected = sync_pb2.WatchResponse(entries=entries_to_pb(message))
        assert _watch_response(message) == expected.SerializeToString()
        assert entries_response(Frame.of(message, "to_client")) == expected.SerializeToString()


async def test_beats_show_that_a_watch_is_alive(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEARTBEAT_S", 0.01)
    request = sync_pb2.WatchRequest(conversation=served.id)
    stream = served.owner.sync.Watch(request, metadata=served.owner.metadata)
    events = [(await stream.read()).WhichOneof("event") for _ in range(4)]
    assert events.count("beat") >= 2
    stream.cancel()


def test_a_server_permits_a_keepalive_every_10_s() -> None:
    options = dict(rpc.SERVER_OPTIONS)
    assert options["grpc.http2.min_ping_interval_without_data_ms"] < 10_000


def test_a_trailer_has_the_keys_of_the_chapter() -> None:
    status = status_of(EntriesMissing("e", missing=[bytes(32)] * 40, retry_after_s=1.5))
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert (status.code, status.message) == (9, "e")
    assert [packed.Unpack(m) for packed, m in zip(status.details, (info, retry), strict=True)] == [
        1,
        1,
    ]
    assert (info.domain, info.reason) == ("antiphon.v1", "ENTRIES_MISSING")
    assert info.metadata.keys() == {"next_step", "missing"}
    assert info.metadata["missing"].split() == [bytes(32).hex()] * 31
    assert (retry.retry_delay.seconds, retry.retry_delay.nanos) == (1, 500_000_000)
    final = status_of(BodyMissing())
    assert [detail.type_url for detail in final.details] == [status.details[0].type_url]
