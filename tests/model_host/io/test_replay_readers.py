"""Callers that do not read what a replay found hold nobody up."""

import asyncio
import threading
from pathlib import Path

import pytest

from antiphon.v1 import host_pb2 as pb
from model_host.errors import ReplayBusy
from model_host.io.calls import replay_handler, replay_stream
from model_host.io.calls.replay_handler import ReplayHandler
from model_host.replay import parts_of
from replica.conversation import Finding, Receipt, ReceiptInvalid, ReplayMode
from replica.errors import AntiphonError
from replica.io import ReplayEvent, event_to_pb
from replica.io.calls import replays as replay_messages
from replica.io.calls.host_calls import HostCalls
from replica.refusals import SlowReader
from tests.model_host.io.two_profiles import KV_BYTES, TwoProfiles, two_profiles

ONE = KV_BYTES + 4 * 1024 * 1024
"""Memory for one tiny model, and not for two."""
LONG = "x" * 1_000_000
"""Words of a finding that gRPC sends only as its reader reads."""


def long_findings(event: ReplayEvent) -> pb.ReplayResponse:
    made = event_to_pb(event)
    if made.HasField("finding"):
        made.finding.detail = LONG
    return made


@pytest.fixture(autouse=True)
def unread(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "profiles"))
    monkeypatch.setattr(replay_stream, "event_to_pb", long_findings)


def calls_of(two: TwoProfiles) -> HostCalls:
    return HostCalls(two.host.address, two.replica.key, two.host.key)


async def until_computed(replays: ReplayHandler) -> None:
    async with asyncio.timeout(30):
        while replays.is_busy:  # noqa: ASYNC110  # no event says so
            await asyncio.sleep(0)


async def test_a_caller_that_reads_nothing_keeps_no_profile_loaded(tmp_path: Path):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two, calls_of(two) as calls:
        for _ in range(4):
            await two.talk.ask("hello", tokens=1)
        events = calls.replay(two.talk.id, ReplayMode.VERIFY)
        await anext(events)
        await until_computed(two.host.replays)  # before that it takes turns with the other one
        async with asyncio.timeout(30):
            await two.talk.ask("hello", tokens=1, profile=two.second.profile.digest)
        assert two.loaded == ["second"]
        *_, last = [event async for event in events]  # it is all there
        assert isinstance(last, Receipt)


async def test_a_caller_keeps_no_more_findings_than_a_replay_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(replay_messages, "FINDINGS_BYTES_MAX", 3 * len(LONG))
    async with two_profiles(tmp_path) as two, calls_of(two) as calls:
        for _ in range(4):
            await two.talk.ask("hello", tokens=1)
        found = []
        with pytest.raises(ReceiptInvalid, match="findings have more than 3,000,000 bytes"):
            async for event in calls.replay(two.talk.id, ReplayMode.VERIFY):
                found += [event] if isinstance(event, Finding) else []
        assert len(found) == 2


async def test_a_caller_that_reads_too_slowly_loses_its_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with two_profiles(tmp_path) as two, calls_of(two) as calls:
        for _ in range(4):
            await two.talk.ask("hello", tokens=1)
        monkeypatch.setattr(replay_stream, "WRITE_TIMEOUT_S", 0.0)
        events = calls.replay(two.talk.id, ReplayMode.VERIFY)
        with pytest.raises(AntiphonError) as refused:
            async for _ in events:
                pass
        assert refused.value.reason == SlowReader.reason
        assert (two.host.replays.is_busy, two.host.replays._unread) == (False, [])


async def test_of_the_replays_that_nobody_reads_the_oldest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(replay_handler, "REPLAYS_UNREAD_MAX", 1)
    async with two_profiles(tmp_path) as two, calls_of(two) as calls:
        for _ in range(4):
            await two.talk.ask("hello", tokens=1)
        replays = []
        for _ in range(2):
            replays.append(calls.replay(two.talk.id, ReplayMode.VERIFY))
            await anext(replays[-1])
            await until_computed(two.host.replays)
        with pytest.raises(AntiphonError) as refused:
            async for _ in replays[0]:
                pass
        assert refused.value.reason == SlowReader.reason
        *_, last = [event async for event in replays[1]]
        assert isinstance(last, Receipt)


async def test_a_replay_whose_caller_left_is_the_only_one_until_its_thread_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    began, may_end = threading.Event(), threading.Event()

    def held_up(*given):
        began.set()
        may_end.wait(10)
        return parts_of(*given)

    monkeypatch.setattr(replay_handler, "parts_of", held_up)
    async with two_profiles(tmp_path) as two, calls_of(two) as calls:
        await two.talk.ask("hello", tokens=1)
        left = asyncio.ensure_future(anext(calls.replay(two.talk.id, ReplayMode.VERIFY)))
        await asyncio.to_thread(began.wait)
        (computing,) = [task for task in asyncio.all_tasks() if task.get_name() == "replay"]
        left.cancel()
        async with asyncio.timeout(30):
            while not computing.cancelling():  # noqa: ASYNC110  # no event says so
                await asyncio.sleep(0)
        with pytest.raises(AntiphonError) as refused:
            await anext(calls.replay(two.talk.id, ReplayMode.VERIFY))
        assert refused.value.reason == ReplayBusy.reason
        may_end.set()
        await until_computed(two.host.replays)
        *_, last = [event async for event in calls.replay(two.talk.id, ReplayMode.VERIFY)]
        assert isinstance(last, Receipt)
