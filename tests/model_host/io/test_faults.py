"""A failure of one request ends that request and nothing else: real hub, host and model."""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest

from model_host import sampling
from model_host.engine.torch_engine import TorchEngine
from model_host.generation import runner
from model_host.io.answers import request_handler
from model_host.io.server import HostServer
from model_host.scheduling import schedule
from replica.conversation.author import Author
from replica.conversation.drafts import start_digest
from replica.conversation.next_seal import sealable
from replica.errors import StoreError
from replica.ids import Digest, EntryId, PublicKey
from replica.log.body import (
    FinishReason,
    Generation,
    Grant,
    Member,
    Message,
    Request,
    Role,
    Sampling,
    Speaker,
    Text,
)
from replica.log.entry import Conflict
from replica.log.kinds import Kind
from replica.refusals import BodyTooLarge
from tests.model_host.io.held_steps import held_after
from tests.model_host.io.served_host import ServedHost, without_room_for_answers
from tests.support.callers import until
from tests.support.talk import Talk, text_of

SEEDED = Sampling(temperature=0.9, top_p=0.95, seed=11)
STORY = "Write a very long story about the sea."


async def is_well(served: ServedHost, host: HostServer) -> bool:
    """Say whether the host still answers another conversation."""
    other = await Talk.begin(served.replica, host.key)
    _, answer = await other.ask("Name a colour.", tokens=3)
    return len(answer.token_ids) == 3 and not host.task.done()


async def some_words(served: ServedHost, talk: Talk, **more) -> EntryId:
    """Ask for a long answer, and wait until its first words are drafted."""
    await talk.say(STORY)
    request = await talk.request(tokens=1000, sampling=SEEDED, **more)
    assert await served.replica.wait_for(lambda: len(talk.shown(request)) > 20, 30)
    return request


# --- unexpected failures ------------------------------------------------------------


async def test_an_engine_failure_ends_the_run_with_the_text_shown(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        with monkeypatch.context() as patch:
            step, decoded = TorchEngine.step, iter(range(5))

            def fail_at_last(engine, batch):
                if len(batch[0].ids) == 1 and next(decoded, None) is None:
                    raise RuntimeError("out of memory")
                return step(engine, batch)

            patch.setattr(TorchEngine, "step", fail_at_last)
            request, answer = await talk.ask(STORY, tokens=50)
        assert answer.finish_reason == FinishReason.INTERRUPTED
        assert answer.finish_detail.startswith("HOST_FAILED: ")
        assert len(answer.token_ids) == 6
        assert text_of(answer.parts) == talk.shown(request) != ""
        assert list(served.journals.iterdir()) == []
        assert await is_well(served, host)
        # Positions the engine left half written are not used by the next request.
        _, after = await talk.ask("Name a colour.", tokens=4)
        assert len(after.token_ids) == 4
    async with served.host() as host:
        assert await is_well(served, host)


async def test_a_plan_that_fails_refuses_the_request(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_args, **_more):
        raise ZeroDivisionError

    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        with monkeypatch.context() as patch:
            patch.setattr(request_handler, "plan", fail)
            request, answer = await talk.ask("Hello.")
        assert answer.finish_reason == FinishReason.REFUSED
        assert answer.finish_detail.startswith("HOST_FAILED: ")
        assert request not in talk.held.order.seal_of
        assert await is_well(served, host)


async def test_a_request_that_can_not_be_closed_is_left_until_the_next_start(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    tried = asyncio.Event()

    def fail(*_args, **_more):
        raise ZeroDivisionError

    def fail_again(*_args):
        tried.set()
        raise ZeroDivisionError

    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        with monkeypatch.context() as patch:
            patch.setattr(request_handler, "plan", fail)
            patch.setattr(request_handler, "finish_detail", fail_again)
            await talk.say("Hello.")
            request = await talk.request()
            await asyncio.wait_for(tried.wait(), 20)
        assert await is_well(served, host)
        assert talk.held.order.answer(request) is None
    async with served.host():
        assert (await talk.answer(request)).finish_reason != FinishReason.REFUSED


async def test_a_log_that_refuses_entries_leaves_the_request_open(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        append, refusals = host.replica.append, iter(range(2))

        async def full_at_first(conversation, body, **more):
            if next(refusals, None) is not None:
                raise StoreError("no space")
            return await append(conversation, body, **more)

        monkeypatch.setattr(host.replica, "append", full_at_first)
        _, answer = await talk.ask("Name a colour.", tokens=3)
        assert len(answer.token_ids) == 3
        assert host.host.counters.refusals == 0


# --- hosts that end during an answer ----------------------------------------------------


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_sealed_request_this_host_can_not_continue_keeps_the_text_shown(
    served: ServedHost, small_of: Callable[[str], TorchEngine], *, is_named: bool
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        profile = host.profile.digest if is_named else None
        request = await some_words(served, talk, profile=profile)
    shown = talk.shown(request)
    async with served.host(small_of("fp32")) as host:
        answer = await talk.answer(request)
        assert answer.finish_reason == FinishReason.INTERRUPTED
        assert answer.finish_detail.startswith("PROFILE_UNKNOWN: the answer began under ")
        # A request that named no profile has none to leave out.
        assert ": the answer goes on from here." in answer.finish_detail
        assert text_of(answer.parts).startswith(shown)
        assert answer.usage.prompt_tokens == 0
        assert answer.numerics_class != host.thread.engine.numerics_class
        # The conversation goes on.
        _, more = await talk.ask("Name a colour.", tokens=3)
        assert len(more.token_ids) == 3


async def test_a_request_cancelled_while_its_host_is_away_ends_with_the_text_shown(
    served: ServedHost,
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        request = await some_words(served, talk)
    shown = talk.shown(request)
    await talk.cancel(request)
    async with served.host() as host:
        answer = await talk.answer(request)
        assert answer.finish_reason == FinishReason.CANCELLED
        assert text_of(answer.parts).startswith(shown)
        assert len(answer.token_ids) < 1000
        assert await is_well(served, host)


async def test_a_sealed_request_against_newer_rules_keeps_the_text_shown(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        request = await some_words(served, talk, stop=("x" * 100,))
    monkeypatch.setattr("model_host.generation.stop.STOP_STRING_BYTES_MAX", 10)
    async with served.host() as host:
        answer = await talk.answer(request)
        assert answer.finish_reason == FinishReason.INTERRUPTED
        assert answer.finish_detail.startswith("STOP_INVALID: ")
        assert text_of(answer.parts).startswith(talk.shown(request))
        assert await is_well(served, host)


async def test_tokens_of_another_recipe_are_kept_and_not_decoded(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        request = await some_words(served, talk)
    seen = list(talk.tokens(request))
    file = served.engine.file
    file = replace(file, template=file.template.replace("SmolLM", "Sam"))
    async with served.host(replace(served.engine, file=file)) as host:
        answer = await talk.answer(request)
        assert answer.finish_reason == FinishReason.INTERRUPTED
        assert seen
        assert list(answer.token_ids[: len(seen)]) == seen
        assert (answer.parts, answer.visible_bytes) == ((), 0)
        assert await is_well(served, host)


async def test_a_run_of_another_sampling_recipe_is_closed_with_the_text_shown(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(sampling, "RECIPE_DIGEST", Digest(b"another recipe".ljust(32)))
        async with served.host() as host:
            talk = await Talk.begin(served.replica, host.key)
            request = await some_words(served, talk)
    async with served.host() as host:
        answer = await talk.answer(request)
        assert answer.finish_reason == FinishReason.INTERRUPTED
        assert text_of(answer.parts).startswith(talk.shown(request))
        # Whoever verifies the tokens must not take them for those of the present recipe.
        assert (answer.sampler_digest, answer.render_recipe_digest) == (None, None)
        _, more = await talk.ask("Name a colour.", tokens=3)
        assert more.sampler_digest == sampling.RECIPE_DIGEST
        assert more.render_recipe_digest is not None


async def test_a_run_closed_without_computing_leaves_no_checkpoint(
    served: ServedHost, small_of: Callable[[str], TorchEngine]
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        cut_off = await some_words(served, talk)
    seen = list(talk.tokens(cut_off))
    root = EntryId(talk.id)
    text = Text("List ten animals, five cities and seven rivers, each with a description.")
    said = await talk.replica.append(talk.id, Message(Speaker.USER, (text,)), parents=(root,))
    body = Request(talk.host, Sampling(), output_tokens_max=60)
    fork = Conflict.FORK
    branch = (await talk.replica.append(talk.id, body, parents=(said.id,), conflict=fork)).id
    async with served.host(small_of("fp32")) as host:
        await talk.answer(branch)
        closed = await talk.answer(cut_off)
        assert closed.finish_reason == FinishReason.INTERRUPTED
        assert seen
        assert list(closed.token_ids[: len(seen)]) == seen
        node = talk.held.order.nodes[talk.held.order.seal_of[cut_off]]
        question = Message(Speaker.USER, (Text("What were we talking about?"),))
        said = await talk.replica.append(
            talk.id, question, parents=(node.generation,), basis=node.id
        )
        more = await talk.replica.append(talk.id, body, parents=(said.id,), basis=node.id)
        answer = await talk.answer(more.id)
        await served.kept(talk, host, 2)
        held = {manifest.seal for manifest in await host.thread.manifests(talk.id)}
        assert held == {talk.held.order.seal_of[branch], talk.held.order.seal_of[more.id]}
        await host.thread.evict(talk.id, checkpoints=True)
        again = await talk.answer(await talk.regenerate(more.id))
    assert again.usage.prefilled_tokens == again.usage.prompt_tokens
    assert again.token_ids == answer.token_ids


@pytest.mark.parametrize("numerics", ["q4", "bf16", "fp32"])
async def test_a_run_that_had_finished_keeps_its_finish_reason(
    served_real: ServedHost,
    engine_of: Callable[[str], TorchEngine],
    monkeypatch: pytest.MonkeyPatch,
    numerics: str,
):
    async with served_real.host() as host:
        talk = await Talk.begin(served_real.replica, host.key)
        refused = without_room_for_answers(host, monkeypatch)
        await talk.say("What is the capital of France? Answer in one word.")
        request = await talk.request(tokens=60)
        await asyncio.wait_for(refused.wait(), 30)
    await talk.cancel(request)
    async with served_real.host(engine_of(numerics)) as host:
        answer = await talk.answer(request)
        assert answer.finish_reason == FinishReason.STOP
        assert answer.token_ids[-1] in host.offer.stop_ids
        assert text_of(answer.parts) == talk.shown(request)
        # Nothing was left to compute, so a CANCEL could end nothing.
        assert answer.usage.prompt_tokens == 0
        assert host.thread.counts.writes.written == 0


async def test_journals_of_answered_requests_are_deleted(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await some_words(served, talk)
    (path,) = served.journals.iterdir()
    kept = shutil.copy(path, served.folder / "kept")
    async with served.host() as host:
        (request,) = talk.held.order.requests
        await talk.cancel(request)
        await talk.answer(request)
    shutil.copy(kept, path)
    (served.journals / "notes.journal").write_bytes(b"a stranger's")
    async with served.host() as host:
        assert await is_well(served, host)
    assert [p.name for p in served.journals.iterdir()] == ["notes.journal"]


# --- limits -------------------------------------------------------------------------


async def test_a_conversation_that_decoded_beyond_a_slab_has_another_turn(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        text = "The sea is blue. " * 91 + STORY
        request, first = await talk.ask(text, tokens=40, sampling=SEEDED)
        assert first.usage.prompt_tokens < 512 < first.usage.prompt_tokens + len(first.token_ids)
        # A branch before that slab: the decoded tokens are cut off again.
        second = await talk.answer(await talk.regenerate(request))
        assert second.token_ids == first.token_ids


async def test_an_answer_ends_before_its_entry_would_grow_too_large(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runner, "BODY_BYTES_MAX", 4096 + 100)
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        request, answer = await talk.ask(STORY, tokens=100)
        assert answer.finish_reason == FinishReason.LENGTH
        assert 5 < len(answer.token_ids) < 20
        node = talk.held.order.nodes[talk.held.order.seal_of[request]]
        body = talk.held.log.body(request)
        more = await talk.replica.append(talk.id, body, parents=(node.generation,), basis=node.id)
        assert len((await talk.answer(more.id)).token_ids) > 5


async def test_an_answer_that_no_entry_holds_is_lost_and_its_branch_goes_on(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        append = host.replica.append

        async def refuse_large(conversation, body, **more):
            if isinstance(body, Generation) and len(body.token_ids) > 3:
                raise BodyTooLarge("the body would have 1000000 bytes")
            return await append(conversation, body, **more)

        monkeypatch.setattr(host.replica, "append", refuse_large)
        request, answer = await talk.ask(STORY, tokens=5)
        assert answer.finish_reason == FinishReason.INTERRUPTED
        assert answer.finish_detail.startswith("BODY_TOO_LARGE: ")
        assert (answer.token_ids, answer.parts) == ((), ())
        assert answer.draft_digest == start_digest(request, answer.run)
        assert list(served.journals.iterdir()) == []
        _, more = await talk.ask("Name a colour.", tokens=3)
        assert len(more.token_ids) == 3


async def test_a_cancelled_prefill_counts_no_prompt(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.say("The sea is blue. " * 350)
        with held_after(1) as goes_on:
            request = await talk.request(tokens=200, output_tokens_min=200)
            assert await served.replica.wait_for(lambda: request in talk.held.order.seal_of, 20)
            await talk.cancel(request)
            there = host.replica.shelf[talk.id].order
            await until(lambda: there.is_cancelled(request))
            goes_on.set()
            answer = await talk.answer(request)
    assert answer.finish_reason == FinishReason.CANCELLED
    usage = answer.usage
    counted = usage.cached_tokens + usage.restored_tokens + usage.prefilled_tokens
    assert usage.prompt_tokens == counted


async def test_a_host_that_can_make_nothing_durable_fails_with_an_error(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Name a colour.", tokens=3)

        async def fail(_entries, **_given):
            raise RuntimeError("on purpose")

        monkeypatch.setattr(host.replica.store, "append", fail)
        await talk.say("Name another.")
        with pytest.raises(RuntimeError, match="on purpose"):
            await asyncio.wait_for(host.failed(), 20)


# --- membership entries of others ---------------------------------------------------


async def test_more_membership_heads_than_a_seal_names_are_gathered_first(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        for number in range(70):
            author = Author(served.replica.key, epoch=number + 1)
            grant = Member(Grant(PublicKey(bytes([number]) * 32), Role.READER))
            await served.replica.append_entry(
                author.write(talk.held, grant, parents=(talk.id,), salt=bytes(16), time_ms=0)
            )
        _, answer = await talk.ask("Name a colour.", tokens=3)
        assert len(answer.token_ids) == 3
        kinds = [
            e.header.kind for e in talk.held.log.entries.values() if e.header.author == host.key
        ]
        assert Kind.JOIN in kinds


async def test_a_seal_that_does_not_count_ends_its_request(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        with monkeypatch.context() as patch:
            # As if the host's membership differed from the one it knows.
            patch.setattr(
                schedule,
                "sealable",
                lambda held, i: replace(sealable(held, i), membership_heads=()),
            )
            _, answer = await talk.ask("Name a colour.", tokens=3)
        assert answer.finish_reason == FinishReason.REFUSED
        assert "does not count" in answer.finish_detail
        assert await is_well(served, host)
