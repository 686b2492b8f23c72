"""One answer: what is computed of it, foreign tokens, a grammar's masks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from model_host.errors import GrammarFailed
from model_host.grammar import GrammarSource
from model_host.refusals import GrammarInvalid
from model_host.replay.case import collect
from model_host.replay.check import AnswerCheck, Samplers
from model_host.replay.rendering import RenderedCase, render_cases
from model_host.sampling import RECIPE_DIGEST
from replica.conversation import Cause, Outcome
from replica.errors import HostError
from replica.ids import Digest
from replica.log.body import FinishReason, Generation, Text, Usage
from tests.model_host.number_engine import VOCAB
from tests.model_host.rendering.test_render import RENDERER
from tests.model_host.replay.replayed import HERE, Answered, make_run

SOURCE = GrammarSource("a grammar")


def check_of(scene: Answered, grammar=None, **here) -> AnswerCheck:
    """Return the check of the only answer, with its run."""
    conditions = replace(HERE, **here)
    (one,) = render_cases(collect(scene.held), RENDERER, conditions.profile)
    check = AnswerCheck(one, conditions, Samplers())
    run = make_run(scene.held.id, one)
    if grammar is not None:
        run.grammar, run.plan = grammar, replace(run.plan, grammar=SOURCE)
    check.run_with(run)
    return check


def choosing(token_id: int) -> np.ndarray:
    logits = np.zeros(VOCAB, np.float32)
    logits[token_id] = 1
    return logits


def answered(tokens: int, first: int | None = None, change=lambda honest: honest) -> Answered:
    scene = Answered()

    def changed(honest):
        ids = honest.token_ids if first is None else (first, *honest.token_ids[1:])
        return change(replace(honest, token_ids=ids))

    scene.asks("a", tokens, changed)
    return scene


def test_the_last_token_is_not_computed_and_each_has_a_row():
    check = check_of(answered(3))
    span, prompt = check.span, len(check.context.ids)
    assert span.ids == (*check.context.ids, *check.recorded.token_ids[:2])
    assert range(span.first, len(span.ids)) == range(prompt - 1, prompt + 2)
    assert (check.tokens, check.is_complete) == (3, False)


def test_nothing_is_computed_behind_a_token_outside_the_vocabulary():
    check = check_of(answered(3, first=VOCAB))
    assert check.span.ids == check.context.ids
    check.receive(0, choosing(5))
    assert check.is_complete
    found = check.finding()
    assert (found.outcome, found.cause, found.token_index) == (Outcome.DIFFERS, Cause.TOKEN, 0)
    # Where tokens are scored, it has no log probability.
    check = check_of(answered(3, first=VOCAB), numerics_class=bytes(32))
    check.receive(0, choosing(5))
    assert check.finding().logprobs == ()


class Walked(tuple[int, ...]):
    """Token ids that count how often they are walked through."""

    walks = 0

    def __iter__(self):
        Walked.walks += 1
        return super().__iter__()


def test_the_cost_of_a_token_does_not_grow_with_the_answer(monkeypatch: pytest.MonkeyPatch):
    check = check_of(answered(200))
    case = check.case
    case = replace(case, recorded=replace(case.recorded, token_ids=Walked(case.recorded.token_ids)))
    rendered = RenderedCase(case, check.context)
    again = AnswerCheck(rendered, HERE, Samplers())
    again.run_with(make_run(bytes(32), rendered))
    monkeypatch.setattr(Walked, "walks", 0)
    for index in range(again.tokens):
        again.receive(index, choosing(5))
        assert again.is_complete == (index == again.tokens - 1)
    assert Walked.walks == 0


def test_logits_without_a_choice_are_a_difference():
    check = check_of(answered(1))
    check.receive(0, np.full(VOCAB, np.nan, np.float32))
    assert check.finding().cause == Cause.TOKEN


class Allowing:
    """A grammar that allows one token, which it notes when it comes."""

    is_over = False

    def __init__(self, allowed: int) -> None:
        self.allowed, self.seen = allowed, list[int]()

    def mask(self):
        words = np.zeros(4, np.int32)
        words.view(np.uint32)[self.allowed // 32] = 1 << self.allowed % 32
        return words

    def advance(self, token_id: int) -> None:
        if token_id != self.allowed:
            raise GrammarFailed("it is not the one")
        self.seen.append(token_id)


def with_grammar(honest: Generation) -> Generation:
    return replace(honest, grammar_engine=HERE.grammar_engine, grammar_digest=SOURCE.digest)


def test_the_masks_of_a_grammar_apply_at_each_token():
    (token_id, *_), other = answered_ids(), 7
    scene = answered(1, change=with_grammar)
    check = check_of(scene, Allowing(other))
    check.receive(0, choosing(token_id))
    assert f"yields {other}" in check.finding().detail
    grammar = Allowing(token_id)
    check = check_of(scene, grammar)
    check.receive(0, choosing(other))
    assert check.finding().outcome == Outcome.ACCEPTED
    assert grammar.seen == [token_id]


@pytest.mark.parametrize("limit", [2, 3])
@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.STOP])
@pytest.mark.parametrize(
    ("states", "cause"),
    [
        ({"numerics_class": Digest(b"o" * 32)}, Cause.OTHER_NUMERICS),
        ({"sampler_digest": Digest(b"o" * 32)}, Cause.SAMPLING_UNKNOWN),
        ({"sampler_digest": None}, Cause.SAMPLING_UNKNOWN),
        ({"grammar_engine": "other 1.0"}, Cause.SAMPLING_UNKNOWN),
    ],
)
def test_a_token_that_the_form_forbids_is_no_difference_where_tokens_are_not_judged(
    states: dict[str, Any], cause: Cause, finish: FinishReason, limit: int
):
    """HOST-75. Nor is its end, where a form may be the reason of it."""

    def change(honest: Generation) -> Generation:
        return cut(replace(with_grammar(honest), finish_reason=finish, **states), 2)

    check = check_of(answered(limit, change=change), Allowing(7))
    for index, token_id in enumerate(check.recorded.token_ids):
        check.receive(index, choosing(token_id))
    found = check.finding()
    if (finish, limit) == (FinishReason.LENGTH, 3):
        assert (found.outcome, found.cause) == (Outcome.DIFFERS, Cause.ENDING)
        return
    assert (found.outcome, found.cause) == (Outcome.UNDECIDED, cause)
    assert (len(found.logprobs), found.checked_tokens) == (2, 0)


def cut(told: Generation, tokens: int) -> Generation:
    """Return an answer with its first tokens alone, each of which is one byte of text."""
    text = b"".join(bytes([i]) for i in told.token_ids[:tokens])
    return replace(
        told, token_ids=told.token_ids[:tokens], usage=replace(told.usage, output_tokens=tokens),
        parts=(Text(text.decode()),), visible_bytes=len(text),
    )  # fmt: skip


@pytest.mark.parametrize("engine", ["other 1.0", HERE.grammar_engine])
def test_where_a_form_ends_is_judged_for_its_own_engine_alone(engine: str):
    def change(honest: Generation) -> Generation:
        return replace(with_grammar(honest), grammar_engine=engine)

    scene = answered(2, change=change)
    first, second = check_of(scene).recorded.token_ids
    check = check_of(scene, Complete(first))
    for index, token_id in enumerate((first, second)):
        check.receive(index, choosing(token_id))
    found = check.finding()
    if engine == HERE.grammar_engine:
        assert (found.outcome, found.cause) == (Outcome.DIFFERS, Cause.ENDING)
    else:
        assert (found.outcome, found.cause) == (Outcome.UNDECIDED, Cause.SAMPLING_UNKNOWN)


@pytest.mark.parametrize("foreign", [VOCAB, 2**31])
def test_a_token_outside_the_vocabulary_is_no_difference_where_tokens_are_not_judged(foreign: int):
    other = Digest(b"o" * 32)
    scene = answered(3, first=foreign, change=lambda told: replace(told, numerics_class=other))
    check = check_of(scene)
    check.receive(0, choosing(5))
    found = check.finding()
    assert (found.outcome, found.cause) == (Outcome.UNDECIDED, Cause.OTHER_NUMERICS)
    # What no token says is compared.
    wrong = Usage(output_tokens=9)
    scene = answered(
        3, first=foreign, change=lambda told: replace(told, numerics_class=other, usage=wrong)
    )
    check = check_of(scene)
    check.receive(0, choosing(5))
    assert check.finding().cause == Cause.USAGE


def test_the_grammar_and_its_engine_are_those_of_the_answer():
    (token_id, *_) = answered_ids()
    for change, cause in (
        (lambda honest: replace(with_grammar(honest), grammar_engine="other 1.0"),
         Cause.SAMPLING_UNKNOWN),
        (lambda honest: replace(with_grammar(honest), grammar_digest=Digest(bytes(32))),
         Cause.REQUEST),
    ):  # fmt: skip
        check = check_of(answered(1, change=change), Allowing(token_id))
        check.receive(0, choosing(token_id))
        assert check.finding().cause == cause


@pytest.mark.parametrize("engine", [HERE.grammar_engine, "forged 1.0"])
@pytest.mark.parametrize("numerics_class", [HERE.numerics_class, bytes(32)], ids=["own", "other"])
def test_an_engine_that_no_grammar_used_is_a_difference(engine: str, numerics_class: bytes):
    """On another numerics class too: it follows from the request."""
    (token_id, *_) = answered_ids()
    forged = answered(1, change=lambda honest: replace(honest, grammar_engine=engine))
    check = check_of(forged, numerics_class=numerics_class)
    check.receive(0, choosing(token_id))
    found = check.finding()
    assert (found.cause, "grammar engine" in found.detail) == (Cause.REQUEST, True)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (GrammarInvalid("no such rule"), (Outcome.DIFFERS, Cause.REQUEST)),
        (
            GrammarInvalid("too much time", is_costly=True),
            (Outcome.UNDECIDED, Cause.SAMPLING_UNKNOWN),
        ),
        (HostError("no process"), (Outcome.UNDECIDED, Cause.SAMPLING_UNKNOWN)),
    ],
)
def test_a_limit_or_a_failure_of_this_host_is_no_difference(error, verdict):
    (one,) = render_cases(collect(answered(1).held), RENDERER, HERE.profile)
    check = AnswerCheck(one, HERE, Samplers())
    check.refuse(error)
    found = check.finding()
    assert (found.outcome, found.cause) == verdict


class Complete(Allowing):
    """A grammar that is complete behind its first token."""

    @property
    def is_over(self) -> bool:
        return bool(self.seen)


def test_an_interrupted_answer_may_have_reached_its_end():
    (token_id, *_) = answered_ids()
    outcomes = {}
    for finish in (FinishReason.STOP, FinishReason.INTERRUPTED, FinishReason.LENGTH):
        scene = answered(
            1, change=lambda honest, one=finish: replace(with_grammar(honest), finish_reason=one)
        )
        check = check_of(scene, Complete(token_id))
        check.receive(0, choosing(token_id))
        outcomes[finish] = check.finding().outcome
    assert outcomes == {
        FinishReason.STOP: Outcome.ACCEPTED,
        FinishReason.INTERRUPTED: Outcome.ACCEPTED,
        FinishReason.LENGTH: Outcome.DIFFERS,
    }


def test_an_interrupted_answer_does_not_go_on_behind_its_end():
    first, second, *_ = check_of(answered(2)).recorded.token_ids
    scene = answered(
        2,
        change=lambda honest: replace(with_grammar(honest), finish_reason=FinishReason.INTERRUPTED),
    )
    check = check_of(scene, Complete(first))
    check.receive(0, choosing(first))
    check.receive(1, choosing(second))
    found = check.finding()
    assert (found.outcome, found.cause, found.token_index) == (Outcome.DIFFERS, Cause.ENDING, 1)


def answered_ids() -> tuple[int, ...]:
    return check_of(answered(1)).recorded.token_ids


def test_answers_of_one_recipe_share_a_sampler():
    samplers = Samplers()
    assert samplers.of(RECIPE_DIGEST) is samplers.of(RECIPE_DIGEST) is samplers.present
    assert samplers.of(None) is samplers.of(Digest(bytes(32))) is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"prompt_tokens": 1, "prefilled_tokens": 1}, "it states {1} prompt tokens, not {0}"),
        ({"cached_tokens": 1}, "it states {1} cached, restored and prefilled tokens of {0}"),
        ({"output_tokens": 1}, "it states 4 output tokens"),
    ],
)
def test_a_usage_that_differs_is_told_by_the_numbers_that_do(more: dict[str, int], words: str):
    def stated(honest: Generation) -> Generation:
        usage = honest.usage
        grown = {name: getattr(usage, name) + count for name, count in more.items()}
        return replace(honest, usage=replace(usage, **grown))

    check = check_of(answered(3, change=stated))
    for index, token_id in enumerate(check.recorded.token_ids):
        check.receive(index, choosing(token_id))
    found, prompt = check.finding(), len(check.context.ids)
    assert (found.cause, found.detail) == (Cause.USAGE, words.format(prompt, prompt + 1))
