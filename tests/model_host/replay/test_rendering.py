"""Contexts rendered from the log alone, and compared with what their seals state."""

from dataclasses import replace

import pytest

from model_host.errors import RenderingInterrupted, ReplayTooLarge
from model_host.refusals import TemplateUnsupported
from model_host.rendering import Renderer, Template
from model_host.replay import rendering
from model_host.replay.case import Collected, collect
from model_host.replay.rendering import render_cases
from replica.conversation import Cause
from replica.ids import Digest
from replica.log.body import Message, Speaker, Tokens
from replica.order.tail import frontier
from tests.model_host.rendering.test_render import ENCODER, RENDERER
from tests.model_host.replay.replayed import HERE, Answered
from tests.model_host.templates import ALTERNATING
from tests.support.writers import said

OTHER = Digest(b"other".ljust(32, b"."))


def test_each_context_is_the_one_its_seal_states():
    scene = Answered()
    answers = [scene.asks(text) for text in "abc"]
    cases = list(render_cases(collect(scene.held), RENDERER, HERE.profile))
    assert [one.case.entry for one in cases] == answers
    assert {one.problem for one in cases} == {None}
    for one in cases:
        assert one.context.digest == one.case.seal.render_digest


def restated(collected: Collected, **changes) -> Collected:
    """Return a conversation whose last seal states something else."""
    *seals, last = collected.seals
    seal = replace(last.seal, **changes)
    last = replace(last, seal=seal, case=replace(last.case, seal=seal))
    return replace(collected, seals=(*seals, last))


def test_another_rendering_is_a_difference_under_the_same_profile_alone():
    scene = Answered()
    scene.asks("a")
    collected = collect(scene.held)
    for changes in ({"render_digest": OTHER}, {"tokens_per_entry": (1, 1, 1)}):
        (one,) = render_cases(restated(collected, **changes), RENDERER, HERE.profile)
        assert one.problem.cause is Cause.RENDERING
        (one,) = render_cases(restated(collected, **changes), RENDERER, OTHER)
        assert one.problem.cause is Cause.OTHER_TEMPLATE


def test_the_first_entry_with_other_tokens_is_named():
    scene = Answered()
    scene.asks("a")
    collected = collect(scene.held)
    seal = collected.seals[0].seal
    counts = (*seal.tokens_per_entry[:-1], 99)
    (one,) = render_cases(restated(collected, tokens_per_entry=counts), RENDERER, HERE.profile)
    assert one.problem.entry == seal.entries[-1]


def test_a_template_that_refuses_the_context_is_another_template():
    scene = Answered()
    scene.asks("a")
    strict = Renderer.load(Template("{{ raise_exception('no') }}" + ALTERNATING), ENCODER)
    (one,) = render_cases(collect(scene.held), strict, OTHER)
    assert one.problem.cause is Cause.OTHER_TEMPLATE


class Failing:
    """A renderer that fails."""

    empty, least_tokens = RENDERER.empty, RENDERER.least_tokens

    def __init__(self, error: Exception) -> None:
        self.error = error

    def extend(self, *_args):
        raise self.error


def test_what_fails_at_this_host_is_no_difference():
    scene = Answered()
    scene.asks("a")
    collected = collect(scene.held)
    with pytest.raises(RenderingInterrupted):
        list(render_cases(collected, Failing(RenderingInterrupted()), HERE.profile))
    costly = Failing(TemplateUnsupported("too much time", is_costly=True))
    (one,) = render_cases(collected, costly, HERE.profile)
    assert one.problem.cause is Cause.OTHER_TEMPLATE
    (one,) = render_cases(collected, Failing(TemplateUnsupported("no")), HERE.profile)
    assert one.problem.cause is Cause.RENDERING


def test_a_missing_body_stops_its_own_branch_alone():
    scene = Answered()
    first, second = scene.asks("a"), scene.asks("b")
    log = scene.held.log
    log.entries[first] = replace(log.entries[first], body=None)
    log._bodies.forget(first)
    cases = {c.case.entry: c for c in render_cases(collect(scene.held), RENDERER, HERE.profile)}
    assert cases[first].problem is None
    assert cases[second].problem.cause is Cause.PART_MISSING
    assert cases[second].problem.entry == first


def test_what_refused_contexts_render_counts_too(monkeypatch: pytest.MonkeyPatch):
    scene = Answered()
    (text,) = frontier(scene.held.order, None)
    last = scene.add(said("a" * 100), [scene.held.log.entries[text]])
    foreign = Message(Speaker.USER, (Tokens((1,), OTHER),))
    last = scene.add(foreign, [last])
    for _ in range(5):
        scene.answers_though_refused(last)
    collected = collect(scene.held)
    monkeypatch.setattr(rendering, "REPLAY_TOKENS_MAX", 600)
    cases = list(render_cases(collected, RENDERER, HERE.profile))
    assert [len(one.context.ids) for one in cases] == [0] * 5
    assert {one.problem.cause for one in cases} == {Cause.RENDERING}
    monkeypatch.setattr(rendering, "REPLAY_TOKENS_MAX", 490)
    with pytest.raises(ReplayTooLarge):
        list(render_cases(collected, RENDERER, HERE.profile))


def test_the_tokens_of_a_chain_of_seals_count_once(monkeypatch: pytest.MonkeyPatch):
    scene = Answered()
    for text in "abcd":
        scene.asks(text)
    collected = collect(scene.held, collect(scene.held).order[-1])
    (one,) = render_cases(collected, RENDERER, HERE.profile)
    monkeypatch.setattr(rendering, "REPLAY_TOKENS_MAX", len(one.context.ids))
    assert list(render_cases(collected, RENDERER, HERE.profile)) == [one]
