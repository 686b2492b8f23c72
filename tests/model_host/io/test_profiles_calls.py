"""The calls of a host with two profiles: each asks the one that the conversation has."""

import asyncio
from pathlib import Path

import pytest

from model_host.refusals import ProfileUnavailable
from replica.conversation import Cause, Outcome, ReplayMode
from replica.ids import EntryId
from replica.io.calls.host_calls import HostCalls
from replica.io.files.keys import load_or_create
from tests.model_host.io.replaying import replay
from tests.model_host.io.two_profiles import KV_BYTES, TwoProfiles, change_weights, two_profiles

pytestmark = pytest.mark.usefixtures("own_cache")

LONG = "hello " * 40
ONE = KV_BYTES + 4 * 1024 * 1024
"""Memory for one tiny model, and not for two."""


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


def counted_loads(two: TwoProfiles) -> list[str]:
    """Return a list that gets the name of each profile that is loaded from now on."""
    profiles, loads = two.host.profiles, list[str]()
    load_engine = profiles._load_engine

    def load(offer, model):
        loads.append(offer.profile.name)
        return load_engine(offer, model)

    profiles._load_engine = load
    return loads


async def test_a_replay_judges_each_answer_under_its_own_profile(tmp_path: Path):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        requests = await asked(two)
        again, _ = await two.talk.ask("more", tokens=4)
        assert two.loaded == ["first"]
        loads = counted_loads(two)
        got = await replay(two.talk, two.host)
        assert loads == ["second"], "each is loaded once, and the one that is there is first"
        assert {f.outcome for f in got.findings.values()} == {Outcome.ACCEPTED}
        assert [got.of(two.talk, r).checked_tokens for r in (*requests, again)] == [4, 4, 4]
        receipt, first, second = got.receipt, two.first.profile, two.second.profile
        assert (receipt.outcome, receipt.accepted, receipt.tokens) == (Outcome.ACCEPTED, 3, 12)
        assert receipt.profile == first.digest, "that of the last seal"
        assert [judge.profile for judge in receipt.further] == [second.digest]


async def test_a_rebuild_compares_what_each_profile_has_cached(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        requests = await asked(two)
        got = await replay(two.talk, two.host, ReplayMode.REBUILD)
        found = [got.of(two.talk, request) for request in requests]
        assert [one.outcome for one in found] == [Outcome.ACCEPTED] * 2
        assert all(one.cached_tokens >= one.prompt_tokens for one in found)


@pytest.mark.parametrize("last", [0, 1])
async def test_answers_of_a_profile_that_can_not_be_loaded_alone_are_undecided(
    last: int, tmp_path: Path
):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        first, second = await asked(two)
        offers = two.host.profiles.offers.all
        await two.talk.ask("more", tokens=4, profile=offers[last].profile.digest)
        async with two.host.profiles.using(two.second):  # the first one is not loaded then
            change_weights(tmp_path / "first", 3.0)
        got = await replay(two.talk, two.host)
        assert got.of(two.talk, second).outcome == Outcome.ACCEPTED
        lost = got.of(two.talk, first)
        assert (lost.outcome, lost.cause) == (Outcome.UNDECIDED, Cause.OTHER_WEIGHTS)
        assert lost.detail.startswith("PROFILE_UNAVAILABLE: ")
        assert (got.receipt.profile, got.receipt.further) == (two.second.profile.digest, ())


async def test_a_replay_of_answers_of_a_profile_that_can_not_be_loaded_is_refused(tmp_path: Path):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        await two.talk.ask("hello", tokens=4)
        async with two.host.profiles.using(two.second):
            change_weights(tmp_path / "first", 3.0)
        with pytest.raises(ProfileUnavailable):
            await replay(two.talk, two.host)


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
        assert {entry.cached_tokens for entry in unloaded.entries} == {0}
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
