"""Whole replays without a model: honest answers, one lie of each kind, rebuilds."""

from dataclasses import replace
from random import Random

import pytest

from model_host.generation import gather, plan
from model_host.rendering import Contexts
from replica.conversation import NO_TOKEN, Cause, Outcome, ReplayMode
from replica.ids import Digest
from replica.log.body import Cancel, FinishReason, Generation, Sampling, Text, Usage
from tests.model_host.kv.paged import compute
from tests.model_host.number_engine import VOCAB
from tests.model_host.rendering.test_render import RENDERER
from tests.model_host.replay.replayed import HERE, HOST, Answered, Replaying, interrupted

OTHER = Digest(b"other".ljust(32, b"."))


def test_an_honest_conversation_is_accepted_with_each_token_computed_once():
    scene = Answered()
    answers = [scene.asks(text, tokens) for text, tokens in (("a", 8), ("b", 300), ("c", 1))]
    replaying = Replaying(scene)
    found = replaying.run()
    assert [found[answer].outcome for answer in answers] == [Outcome.ACCEPTED] * 3
    assert [found[answer].checked_tokens for answer in answers] == [8, 300, 1]
    rows = sum(rows for step in replaying.engine.steps for rows in step)
    assert rows == replaying.replay.tokens == found[answers[-1]].prompt_tokens


def test_each_of_many_random_lies_is_found_at_its_index():
    walk = Random(11)
    scene, expected = Answered(), {}
    for number in range(40):
        index, shift = walk.randrange(12), walk.randrange(1, VOCAB)

        def lie(honest, index=index, shift=shift):
            ids = [*honest.token_ids]
            ids[index] = (ids[index] + shift) % VOCAB
            return replace(honest, token_ids=tuple(ids))

        scene = Answered() if number % 10 == 0 else scene
        if number % 10 == 0:
            expected = {}
        expected[scene.asks(f"question {number}", 12, lie)] = index
        if number % 10 == 9:
            found = Replaying(scene, rows=walk.choice([16, 100, 512])).run()
            for answer, at in expected.items():
                assert (found[answer].outcome, found[answer].cause) == (
                    Outcome.DIFFERS, Cause.TOKEN
                )  # fmt: skip
                assert found[answer].token_index == at


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda g: replace(g, parts=(Text("x"),)), Cause.TEXT),
        (lambda g: replace(g, visible_bytes=99), Cause.TEXT),
        (lambda g: replace(g, finish_reason=FinishReason.STOP), Cause.ENDING),
        (lambda g: replace(g, finish_reason=FinishReason.CANCELLED), Cause.ENDING),
        (lambda g: replace(g, usage=replace(g.usage, output_tokens=9)), Cause.USAGE),
        (lambda g: replace(g, usage=replace(g.usage, cached_tokens=9)), Cause.USAGE),
        (lambda g: replace(g, draft_digest=OTHER), Cause.DRAFTS),
        (lambda g: replace(g, run=8), Cause.DRAFTS),
    ],
)
def test_one_wrong_statement_is_named(change, cause):
    scene = Answered()
    answer = scene.asks("a", 8, change)
    found = Replaying(scene).run()[answer]
    assert (found.outcome, found.cause) == (Outcome.DIFFERS, cause)


def cut(honest: Generation, finish: FinishReason) -> Generation:
    """Return an answer that was cut off after five tokens."""
    ids = honest.token_ids[:5]
    return replace(
        honest, token_ids=ids, parts=(Text(bytes(ids).decode()),), visible_bytes=5,
        usage=replace(honest.usage, output_tokens=5), finish_reason=finish,
    )  # fmt: skip


def test_an_interrupted_answer_is_accepted_and_a_cancelled_one_with_its_cancel_alone():
    scene = Answered()
    stopped = scene.asks("a", 8, lambda honest: cut(honest, FinishReason.INTERRUPTED))
    unasked = scene.asks("b", 8, lambda honest: cut(honest, FinishReason.CANCELLED))
    request = scene.ask("c", output_tokens_max=8)
    scene.add(Cancel(), [scene.held.log.entries[request]])
    cancelled = scene.answers(request, lambda honest: cut(honest, FinishReason.CANCELLED))
    found = Replaying(scene).run()
    assert found[stopped].outcome == found[cancelled].outcome == Outcome.ACCEPTED
    assert found[stopped].checked_tokens == 5
    assert (found[unasked].cause, found[unasked].token_index) == (Cause.ENDING, 4)


def closed(honest: Generation, **changes: object) -> Generation:
    """Return an answer closed by a host without its profile, which had another tokenizer."""
    stated = replace(
        interrupted(honest), sampler_digest=None, render_recipe_digest=None, parts=(),
        visible_bytes=0,
    )  # fmt: skip
    return replace(stated, **changes)


FORGED = {"parts": (Text("I confess."),), "visible_bytes": 10}
NOTHING = {"token_ids": (), "usage": Usage()}


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda g: replace(g, **FORGED), Cause.TEXT),
        (lambda g: replace(g, parts=(), visible_bytes=0), Cause.TEXT),
        (lambda g: replace(g, finish_reason=FinishReason.STOP), Cause.ENDING),
        (lambda g: cut(g, FinishReason.STOP), Cause.ENDING),
        (lambda g: cut(g, FinishReason.CANCELLED), Cause.ENDING),
        (lambda g: replace(g, usage=replace(g.usage, output_tokens=9)), Cause.USAGE),
        (lambda g: replace(g, grammar_digest=OTHER), Cause.REQUEST),
        (lambda g: replace(g, grammar_engine="forged 1.0"), Cause.REQUEST),
        (lambda g: replace(g, **NOTHING, **FORGED, finish_reason=FinishReason.STOP), Cause.ENDING),
        (lambda g: closed(g, finish_reason=FinishReason.STOP), Cause.ENDING),
        (lambda g: closed(g, **FORGED), Cause.TEXT),
        (lambda g: closed(g, visible_bytes=8), Cause.TEXT),
        (lambda g: closed(g, **NOTHING, **FORGED), Cause.TEXT),
        (lambda g: closed(g, usage=replace(g.usage, output_tokens=9)), Cause.USAGE),
    ],
)
def test_statements_are_compared_where_no_rendering_recipe_is_stated(change, cause):
    scene = Answered()
    answer = scene.asks("a", 8, lambda honest: replace(change(honest), render_recipe_digest=None))
    found = Replaying(scene).run()[answer]
    assert (found.outcome, found.cause) == (Outcome.DIFFERS, cause)


def test_an_answer_of_an_unknown_rendering_recipe_is_undecided():
    scene = Answered()
    unknown = [
        scene.asks("a", 8, lambda honest, one=one: replace(honest, render_recipe_digest=one))
        for one in (None, OTHER)
    ]
    request = scene.ask("b", output_tokens_max=8)
    scene.add(Cancel(), [scene.held.log.entries[request]])
    nothing = {"token_ids": (), "finish_reason": FinishReason.CANCELLED, "usage": Usage()}
    unknown.append(scene.answers(request, lambda honest: closed(honest, **nothing)))
    unfinished = scene.asks(
        "c", 8, lambda honest: closed(honest, finish_reason=FinishReason.LENGTH)
    )
    half = scene.asks("d", 8, lambda honest: replace(interrupted(honest), sampler_digest=None))
    found = Replaying(scene).run()
    for answer in (*unknown, unfinished):
        assert (found[answer].outcome, found[answer].cause) == (
            Outcome.UNDECIDED, Cause.OTHER_TEMPLATE
        )  # fmt: skip
    assert (found[half].outcome, found[half].cause) == (
        Outcome.UNDECIDED, Cause.SAMPLING_UNKNOWN
    )  # fmt: skip


def test_what_a_host_without_the_profile_closes_is_accepted_without_tokens_alone():
    scene = Answered()
    empty = scene.asks("a", 8, lambda honest: closed(honest, **NOTHING))
    invented = (5, 5, 5, 5, 5, 5, 5, 5)
    undecided = [
        scene.asks("b", 8, closed),
        scene.asks("c", 8, lambda g: closed(g, parts=g.parts, visible_bytes=g.visible_bytes)),
        scene.asks("d", 8, lambda honest: closed(honest, token_ids=invented)),
    ]
    found = Replaying(scene).run()
    assert (found[empty].outcome, found[empty].cause) == (
        Outcome.ACCEPTED, Cause.NONE
    )  # fmt: skip
    for answer in undecided:
        assert (found[answer].outcome, found[answer].cause) == (
            Outcome.UNDECIDED, Cause.SAMPLING_UNKNOWN
        )  # fmt: skip
        assert len(found[answer].logprobs) == 8


def test_a_host_under_other_conditions_judges_nothing():
    scene = Answered()

    def lie(honest):
        return replace(honest, token_ids=(3, *honest.token_ids[1:]))

    changed, honest = scene.asks("a", 8, lie), scene.asks("b", 8)
    conditions = {
        Cause.OTHER_NUMERICS: replace(HERE, numerics_class=OTHER),
        Cause.OTHER_WEIGHTS: replace(HERE, profile=OTHER),
        Cause.NOT_BITWISE: replace(HERE, bitwise=False),
    }
    for cause, here in conditions.items():
        found = Replaying(scene, here=here).run()
        assert found[changed].outcome in (Outcome.UNDECIDED, Outcome.DIFFERS)
        assert found[changed].cause in (cause, Cause.TEXT)
        judged = cause is not Cause.OTHER_NUMERICS
        assert found[honest].outcome == (Outcome.ACCEPTED if judged else Outcome.UNDECIDED)
        assert len(found[honest].logprobs) == (0 if judged else 8)


def test_an_answer_of_another_profile_than_the_request_names_is_not_accepted():
    scene = Answered()
    named = scene.asks("a", 8, profile=HERE.profile)
    request = scene.ask("b", output_tokens_max=8, profile=OTHER)
    gathered = gather(scene.held, scene.ready(request), Contexts(0))
    asked = replace(gathered, request=replace(gathered.request, profile=None))
    planned = plan(asked, profile=HOST, renderer=RENDERER)
    swapped = scene.answers_by(request, planned)
    found = Replaying(scene).run()
    assert found[named].outcome == Outcome.ACCEPTED
    assert (found[swapped].outcome, found[swapped].cause) == (Outcome.DIFFERS, Cause.REQUEST)
    found = Replaying(scene, here=replace(HERE, profile=OTHER)).run()
    assert found[swapped].outcome == Outcome.UNDECIDED


def test_an_unknown_recipe_is_said_as_such():
    scene = Answered()
    answer = scene.asks("a", 8, lambda honest: replace(honest, sampler_digest=OTHER))
    found = Replaying(scene).run()
    assert (found[answer].outcome, found[answer].cause) == (
        Outcome.UNDECIDED, Cause.SAMPLING_UNKNOWN
    )  # fmt: skip


def test_a_request_that_the_rules_refuse_is_named():
    scene = Answered()
    answer = scene.asks("a", 8)
    found = Replaying(scene, here=replace(HERE, context_tokens=20)).run()[answer]
    assert (found.outcome, found.cause, found.token_index) == (
        Outcome.DIFFERS, Cause.REQUEST, NO_TOKEN
    )  # fmt: skip


def test_a_rebuild_computes_contexts_alone_and_compares_what_is_cached():
    scene = Answered()
    answers = [scene.asks("a", 200), scene.asks("b", 400)]
    replaying = Replaying(scene, ReplayMode.REBUILD)
    cached = replaying.pool
    ids = replaying.replay.passes[0].ids[:600]
    sequence = cached.open((*ids, 0), b"d" * 32, b"c" * 32)
    cached.grow(sequence, len(ids))
    compute(replaying.engine.memory, sequence, ids)
    cached.advance(sequence, ids)
    cached.close(sequence)
    found = replaying.run(b"c" * 32)
    assert [found[answer].outcome for answer in answers] == [Outcome.ACCEPTED] * 2
    assert [found[answer].checked_tokens for answer in answers] == [0, 0]
    assert found[answers[1]].cached_tokens == 600
    assert found[answers[0]].cached_tokens < 600


@pytest.mark.parametrize("at", ["start", "middle", "end"])
def test_a_cached_difference_is_one_of_the_contexts_that_have_it(at: str):
    scene = Answered()
    first, second = scene.asks("a", 30), scene.asks("b", 30)
    third = scene.asks_on_a_branch(first, "c", 30)
    replaying = Replaying(scene, ReplayMode.REBUILD)
    spans = {check.case.entry: check.span for check in replaying.replay._checks}
    branch = replaying.replay.passes[1]
    assert len(spans[first].ids) < branch.start < len(spans[second].ids)
    ids, other = replaying.replay.passes[0].ids, replaying.replay.passes[1].ids
    fault = {"start": 3, "middle": len(spans[first].ids), "end": len(ids) - 2}[at]
    for context in (ids, other):
        sequence = replaying.pool.open((*context, 0), b"d" * 32, b"c" * 32)
        new = context[sequence.tokens :]
        replaying.pool.grow(sequence, len(new))
        wrong = [token_id + (context is ids and i == fault) for i, token_id in enumerate(context)]
        compute(replaying.engine.memory, sequence, tuple(wrong[sequence.tokens :]))
        replaying.pool.advance(sequence, new)
        replaying.pool.close(sequence)
    found = replaying.run(b"c" * 32)
    differ = {answer for answer, finding in found.items() if finding.cause is Cause.CACHE}
    last = second if spans[second].ids == ids else third
    assert differ == {"start": {*found}, "middle": {second, third}, "end": {last}}[at]


def test_a_sampled_answer_drawn_with_another_seed_is_found():
    scene = Answered()
    answer = scene.asks("a", 8, sampling=Sampling(temperature=5.0, seed=3))
    found = Replaying(scene).run()[answer]
    assert (found.outcome, found.cause) == (Outcome.DIFFERS, Cause.TOKEN)
    assert found.differing_tokens > 1
