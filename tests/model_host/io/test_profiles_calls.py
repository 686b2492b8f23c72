"""The calls of a host with two profiles: each asks the one that the conversation has."""

import asyncio
from pathlib import Path

import pytest

from replica.conversation import Cause, Outcome
from replica.ids import EntryId
from replica.io.host_calls import HostCalls
from replica.io.keys import load_or_create
from tests.model_host.io.replaying import replay
from tests.model_host.io.two_profiles import KV_BYTES, TwoProfiles, two_profiles

LONG = "hello " * 40
ONE = KV_BYTES + 4 * 1024 * 1024
"""Memory for one tiny model, and not for two."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "profiles"))


def calls_of(two: TwoProfiles) -> HostCalls:
    return HostCalls(two.host.address, two.replica.key, two.host.key)


async def written(two: TwoProfiles, count: int) -> None:
    """Wait until so many checkpoints are written."""
    while two.host.profiles.counts.writes.written < count:
        await two.host.profiles.manifests(two.talk.id)


async def asked(two: TwoProfiles) -> tuple[EntryId, EntryId]:
    """Ask the first profile, then the second one; return both requests."""
    first, _ = await two.talk.ask(LONG, tokens=4)
    second, _ = await two.talk.ask("hello", tokens=4, profile=two.second.profile.digest)
    return first, second


async def test_a_replay_is_one_of_the_last_seals_profile(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        first, second = await asked(two)
        got = await replay(two.talk, two.host)
        assert got.receipt.profile == two.second.profile.digest
        findings = {two.talk.held.order.generation_of(r): r for r in (first, second)}
        outcomes = {findings[answer]: f for answer, f in got.findings.items()}
        assert outcomes[second].outcome == Outcome.ACCEPTED
        # The other weights compute another canary, or other tokens: nobody changed these.
        assert outcomes[first].outcome in (Outcome.UNDECIDED, Outcome.ACCEPTED)
        assert outcomes[first].cause in (Cause.NONE, Cause.OTHER_WEIGHTS, Cause.OTHER_NUMERICS)


async def test_pages_are_those_of_the_last_seals_profile_and_load_nothing(tmp_path: Path):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        await asked(two)
        await written(two, 2)
        assert two.loaded == ["second"]
        async with calls_of(two) as calls:
            held = await calls.pages(two.talk.id)
            assert held.entries[0].cached_tokens == held.entries[0].tokens
            async with two.host.profiles.using(two.first):
                assert two.loaded == ["first"]
                unloaded = await calls.pages(two.talk.id)
                assert two.loaded == ["first"]
        assert all(entry.cached_tokens == 0 for entry in unloaded.entries)
        assert unloaded.stored_tokens == held.stored_tokens > 0


async def test_numbers_are_sums_over_profiles_unloaded_ones_included(tmp_path: Path):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        await asked(two)
        await written(two, 2)
        assert two.loaded == ["second"]
        own = load_or_create(tmp_path / "host" / "identity.key")
        async with HostCalls(two.host.address, own, two.host.key) as calls:
            sample = await calls.stats()
            counters = (await calls.describe()).counters
        assert sample.number("tokens_total", "output") == 8
        assert sample.number("checkpoints_written_total") == counters.checkpoints == 2
        assert sample.number("tier_limit_bytes", "memory") == KV_BYTES
        assert sample.number("batch_sequences") == 0


async def test_the_newest_checkpoint_travels_whatever_its_profile(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        await asked(two)
        await written(two, 2)
        async with calls_of(two) as calls:
            archive = b"".join([part async for part in calls.export(two.talk.id)])
            newest = (await calls.list_checkpoints(two.talk.id))[0]
            assert await two.host.profiles.evict(two.talk.id, checkpoints=True) != (0, 0)
            assert await calls.list_checkpoints(two.talk.id) == []
            done = await calls.import_([archive])
            assert done.checkpoint.tokens == newest.tokens
        answer = await two.talk.request(tokens=2, profile=two.second.profile.digest)
        assert (await two.talk.answer(answer)).usage.restored_tokens > 0


async def test_checkpoints_of_a_profile_are_written_before_it_is_unloaded(tmp_path: Path):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        await asked(two)
        # The listing waits for threads that end, too.
        listed = await asyncio.gather(
            two.talk.ask("and", tokens=1), two.host.profiles.manifests(two.talk.id)
        )
        assert len(listed[1]) >= 1
        assert two.loaded == ["first"]
        await written(two, 3)
