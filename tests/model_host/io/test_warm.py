"""Warm computes a context for those who may ask, while there is nothing else to compute."""

import asyncio
import threading
from pathlib import Path

import pytest

from model_host.batching import warming
from model_host.errors import CacheBusy
from model_host.io.threads import engine_thread
from model_host.refusals import ContextTooLong
from model_host.replay.computation import Computation
from replica.conversation import Outcome
from replica.errors import AntiphonError
from replica.ids import EntryId
from replica.io.calls.host_calls import HostCalls
from replica.limits import WARMS_MAX
from replica.log.body import Grant, Member, Role
from replica.log.entry import public_key
from replica.refusals import ArgumentInvalid, ConversationUnknown, NotAllowed
from tests.model_host.io.replaying import replay
from tests.model_host.io.two_profiles import KV_BYTES, TwoProfiles, two_profiles
from tests.model_host.kv.pooled import slabs_of
from tests.support.callers import until
from tests.support.talk import Talk, key_of

pytestmark = pytest.mark.usefixtures("own_cache")

LONG = "hello " * 80
ONE = KV_BYTES + 4 * 1024 * 1024
"""Memory for one tiny model, and not for two."""


def calls_of(two: TwoProfiles, number: int = 1) -> HostCalls:
    return HostCalls(two.host.address, key_of(number), two.host.key)


async def seen(two: TwoProfiles, *entries: EntryId, talk: Talk | None = None) -> None:
    """Wait until the host holds entries."""
    host, conversation = two.host.replica, (talk or two.talk).id
    await host.wait_for(
        lambda: (
            conversation in host.shelf
            and all(i in host.shelf[conversation].log.entries for i in entries)
        ),
        30,
    )


class HeldUp:
    """Holds up the first call of a function, which is made in another thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> None:
        self._loop, self._begun = asyncio.get_running_loop(), asyncio.Event()
        self._go_on = threading.Event()
        original = getattr(where, name)

        def held_up(*args, **kwargs):
            self._loop.call_soon_threadsafe(self._begun.set)
            assert self._go_on.wait(30)
            return original(*args, **kwargs)

        monkeypatch.setattr(where, name, held_up)

    async def begun(self) -> None:
        await asyncio.wait_for(self._begun.wait(), 30)

    def go_on(self) -> None:
        """Let this call go on, and all others."""
        self._go_on.set()


async def test_a_context_to_come_is_found_by_the_request(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        said = (await two.talk.say(LONG)).id
        await seen(two, said)
        async with calls_of(two) as calls:
            warmed = await calls.warm(two.talk.id, said)
            again = await calls.warm(two.talk.id, said)
        assert warmed.context_tokens > 100
        assert warmed.cached_tokens == 0
        assert again.cached_tokens == again.context_tokens == warmed.context_tokens
        request = await two.talk.request(tokens=2)
        usage = (await two.talk.answer(request)).usage
        assert usage.cached_tokens == warmed.context_tokens
        # The rest is the header of the answer.
        assert 0 < usage.prefilled_tokens < 20


async def test_warming_changes_no_answer(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        request, cold = await two.talk.ask(LONG, tokens=5)
        async with calls_of(two) as calls:
            await calls._call("Evict", evict(two))
            sealed = two.talk.held.order.seal_of[request]
            warmed = await calls.warm(two.talk.id, sealed)
        assert warmed.context_tokens == cold.usage.prompt_tokens
        warm = await two.talk.answer(await two.talk.regenerate(request))
        assert warm.token_ids == cold.token_ids
        assert warm.usage.cached_tokens == warmed.context_tokens - 1


def evict(two: TwoProfiles):
    from antiphon.v1 import host_pb2 as pb

    return pb.EvictRequest(conversation=two.talk.id, checkpoints=True)


async def test_a_context_is_kept_beside_others_for_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bytes_per_token = 2 * 2 * 2 * 16 * 4
    async with two_profiles(tmp_path, kv_bytes_max=6 * 512 * bytes_per_token) as two:
        said = (await two.talk.say(LONG)).id
        await seen(two, said)
        async with calls_of(two) as calls:
            assert not (await calls.warm(two.talk.id, said)).kept_tokens
            warmed = await calls.warm(two.talk.id, said, keep_s=3_600)
            assert warmed.kept_tokens == warmed.context_tokens
            pool = two.host.thread._pool
            (page,) = await two.host.thread.look(lambda *_: slabs_of(pool, two.talk.id))
            now = two.host.thread._batcher._clock()
            assert page.pinned_until is not None
            assert 3_500 < page.pinned_until - now <= 3_600
            monkeypatch.setattr(two.host.thread._batcher, "_clock", lambda: now + 3_601)
            await two.talk.ask("x", tokens=1)
            pages = await two.host.thread.look(lambda *_: slabs_of(pool, two.talk.id))
            assert {each.pinned_until for each in pages} == {None}
            with pytest.raises(ArgumentInvalid, match="keep_s"):
                await calls.warm(two.talk.id, said, keep_s=3_601)


async def test_another_profile_is_loaded_to_warm_it(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        said = (await two.talk.say(LONG)).id
        await seen(two, said)
        async with calls_of(two) as calls:
            await calls.warm(two.talk.id, said, profile=two.second.profile.digest)
        assert two.loaded == ["first", "second"]
        _, answer = await two.talk.ask("x", tokens=2, profile=two.second.profile.digest)
        assert answer.usage.cached_tokens > 100


async def test_readers_warm_nothing(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        said = (await two.talk.say(LONG)).id
        reader = key_of(7)
        grant = Grant(public_key(reader), Role.READER)
        heads = tuple(two.talk.held.log.membership_heads())
        granted = await two.talk.replica.append(two.talk.id, Member(grant), parents=heads)
        await seen(two, said, granted.id)
        async with calls_of(two, 7) as calls:
            with pytest.raises(NotAllowed):
                await calls.warm(two.talk.id, said)
        async with calls_of(two, 9) as calls:
            with pytest.raises(ConversationUnknown):
                await calls.warm(two.talk.id, said)


async def test_a_caller_who_hangs_up_ends_the_computation(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        said = (await two.talk.say(LONG)).id
        await seen(two, said)
        # While the engine is not idle, nothing is warmed.
        batcher, calls_queue = two.host.thread._batcher, two.host.thread._calls
        turn = two.host.profiles._turns
        async with calls_of(two) as calls:
            with turn:
                warming = asyncio.create_task(calls.warm(two.talk.id, said))
                # No event says so.
                while not (calls_queue.has_idle_calls or turn.waiting):  # noqa: ASYNC110
                    await asyncio.sleep(0)
                warming.cancel()
                await asyncio.gather(warming, return_exceptions=True)
        assert batcher.is_idle
        _, answer = await two.talk.ask("x", tokens=2)
        assert len(answer.token_ids) == 2


async def test_a_context_that_fills_the_model_is_refused_with_both_numbers(tmp_path: Path):
    bytes_per_token = 2 * 2 * 2 * 16 * 4
    async with two_profiles(tmp_path, kv_bytes_max=(512 + 128) * bytes_per_token) as two:
        said = (await two.talk.say(LONG)).id
        await seen(two, said)
        async with calls_of(two) as calls:
            with pytest.raises(AntiphonError, match="tokens, the model holds 128") as refused:
                await calls.warm(two.talk.id, said)
        assert refused.value.reason == ContextTooLong.reason


async def test_tokens_are_counted_for_members_alone(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        said = (await two.talk.say(LONG)).id
        await seen(two, said)
        async with calls_of(two) as calls:
            counted = await calls.count_tokens(two.talk.id, text="hello", at=said)
            assert counted.tokens == len(two.first.tokenizer.encode("hello"))
            assert counted.context_tokens == (await calls.warm(two.talk.id, said)).context_tokens
            assert counted.context_tokens_max == two.first.profile.context_tokens_max
            plain = await calls.count_tokens(two.talk.id, text="<|end|>")
            assert plain.context_tokens == 0
            assert plain.tokens > 1  # typed control tokens are text
            for given in ({"text": "x" * 524_289}, {"at": EntryId(b"?" * 32)}):
                with pytest.raises(ArgumentInvalid):
                    await calls.count_tokens(two.talk.id, **given)
        async with calls_of(two, 9) as stranger:
            with pytest.raises(ConversationUnknown):
                await stranger.count_tokens(two.talk.id, text="hello")


async def test_a_stored_context_is_restored_and_not_computed(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        request, cold = await two.talk.ask(LONG, tokens=5)
        answer = two.talk.held.order.generation_of(request)
        assert answer is not None
        stored = cold.usage.prompt_tokens + cold.usage.output_tokens - 1
        await two.host.thread.manifests(two.talk.id)  # it is written
        await two.host.thread.evict(two.talk.id, checkpoints=False)
        async with calls_of(two) as calls:
            warmed = await calls.warm(two.talk.id, answer)
        assert (warmed.cached_tokens, warmed.restored_tokens) == (0, stored)
        assert two.host.thread.counts.batch.restores == 1
        _, warm = await two.talk.ask("hello", tokens=2)
        assert warm.usage.cached_tokens == warmed.context_tokens == stored + 1


async def test_contexts_that_do_not_fit_together_end_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(warming, "WARM_ROWS", 64)
    bytes_per_token = 2 * 2 * 2 * 16 * 4
    async with two_profiles(tmp_path, kv_bytes_max=(512 + 1024) * bytes_per_token) as two:
        talks = [await Talk.begin(two.replica, two.host.key) for _ in range(WARMS_MAX)]
        said = []
        for number, talk in enumerate(talks, 2):
            grant = Member(Grant(public_key(key_of(number)), Role.WRITER))
            heads = tuple(talk.held.log.membership_heads())
            granted = await two.replica.append(talk.id, grant, parents=heads)
            said.append((await talk.say(LONG * 6)).id)
            await seen(two, granted.id, said[-1], talk=talk)
        held_up = HeldUp(monkeypatch, engine_thread, "warm_chunk")
        warms = [
            asyncio.create_task(warmed(two, number, talk, entry))
            for number, (talk, entry) in enumerate(zip(talks, said, strict=True), 2)
        ]
        await held_up.begun()
        await until(lambda: two.host.thread._calls._idle_calls.qsize() == WARMS_MAX - 1)
        held_up.go_on()
        found = await asyncio.wait_for(asyncio.gather(*warms, return_exceptions=True), 30)
        failed = {one.reason for one in found if isinstance(one, AntiphonError)}
        assert failed == {CacheBusy.reason}
        assert any(isinstance(one, int) and one > 768 for one in found)


async def warmed(two: TwoProfiles, number: int, talk: Talk, entry: EntryId) -> int:
    """Return the tokens of a context that a key has warmed."""
    async with calls_of(two, number) as calls:
        return (await calls.warm(talk.id, entry)).context_tokens


async def test_an_answer_of_another_profile_comes_before_a_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(warming, "WARM_ROWS", 16)
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        held_up = HeldUp(monkeypatch, engine_thread, "warm_chunk")
        said = (await two.talk.say(LONG)).id
        await seen(two, said)
        async with calls_of(two) as calls:
            warming_it = asyncio.create_task(calls.warm(two.talk.id, said))
            await held_up.begun()
            asked = asyncio.create_task(
                two.talk.ask("x", tokens=2, profile=two.second.profile.digest)
            )
            await until(lambda: two.host.profiles.awaits_other(two.first))
            held_up.go_on()
            await asked
            warmed = await warming_it
        # Else the second one would be loaded last.
        assert two.loaded == ["first"]
        assert warmed.context_tokens > 100
        request = await two.talk.request(tokens=2, at=said)
        assert (await two.talk.answer(request)).usage.cached_tokens == warmed.context_tokens


async def test_an_answer_of_another_profile_comes_before_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        for _ in range(2):
            await two.talk.ask(LONG * 3, tokens=2)
        held_up = HeldUp(monkeypatch, Computation, "receive")
        replaying = asyncio.create_task(replay(two.talk, two.host))
        await held_up.begun()
        other = await Talk.begin(two.replica, two.host.key)
        asked = asyncio.create_task(other.ask("x", tokens=2, profile=two.second.profile.digest))
        await until(lambda: two.host.profiles.awaits_other(two.first))
        held_up.go_on()
        await asked
        replayed = await replaying
        assert two.loaded == ["first"]
        assert {one.outcome for one in replayed.findings.values()} == {Outcome.ACCEPTED}
        assert len(replayed.findings) == 2
