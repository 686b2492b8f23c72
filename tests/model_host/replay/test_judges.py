"""Each answer of a replay is judged under its own profile, where this host offers it."""

from dataclasses import replace

import pytest

from model_host.errors import ProfileTooLarge, ReplayTooLarge
from model_host.generation import gather, plan
from model_host.profiles import Profile
from model_host.rendering import Contexts, Renderer, Template
from model_host.replay import judges
from model_host.replay.case import Collected, collect
from model_host.replay.judges import Judges, Part, parts_of, unjudged
from model_host.replay.rendering import render_cases
from replica.conversation import Cause, Outcome
from replica.ids import Digest, EntryId
from tests.model_host.rendering.test_render import CHATML, RENDERER, ByteEncoder
from tests.model_host.replay.replayed import CLASS, HOST, Answered

SECOND = replace(HOST, numerics="q4")
THIRD = replace(HOST, name="of another host")
OTHER = Digest(b"o" * 32)
OFFERED = {profile.digest: RENDERER for profile in (HOST, SECOND)}


def answered_under(scene: Answered, *profiles: Profile) -> list[EntryId]:
    """Ask and answer a question under each of the profiles; return the answers."""
    answers = []
    for profile in profiles:
        request = scene.ask("question", output_tokens_max=4)
        gathered = gather(scene.held, scene.ready(request), Contexts(0))
        planned = plan(gathered, profile=profile, renderer=RENDERER)
        answers.append(scene.answers_by(request, planned))
    return answers


def judged(
    collected: Collected,
    renderers: dict[Digest, Renderer],
    classes: dict[Digest, Digest | None] | None = None,
) -> list[Part]:
    """Return the parts, where the host finds these numerics classes; none else is asked for."""
    judges = Judges(collected, renderers)
    while judges.wanted is not None:
        assert classes is not None, "no class decides"
        judges.note(judges.wanted, classes[judges.wanted])
    return parts_of(collected, judges.of, renderers)


def entries_of(part: Part) -> list[EntryId]:
    return [one.case.entry for one in part.rendered]


def test_each_answer_is_in_the_part_of_its_profile_and_parts_have_the_order_of_the_offers() -> None:
    scene = Answered()
    a, b, c = answered_under(scene, SECOND, HOST, SECOND)
    first, second = judged(collect(scene.held), OFFERED)
    assert (first.profile, entries_of(first)) == (HOST.digest, [b])
    assert (second.profile, entries_of(second)) == (SECOND.digest, [a, c])


@pytest.mark.parametrize("last", [HOST, SECOND, THIRD])
def test_an_answer_of_no_offered_profile_is_judged_by_one_of_its_numerics_class(
    last: Profile,
) -> None:
    scene = Answered()
    lost, *_ = answered_under(scene, THIRD, last)
    for classes, judge in (
        ({HOST.digest: OTHER, SECOND.digest: CLASS}, SECOND),
        ({HOST.digest: CLASS}, HOST),
        ({HOST.digest: OTHER, SECOND.digest: OTHER}, HOST),
        # One that can't be loaded judges only if no other can.
        ({HOST.digest: None, SECOND.digest: OTHER}, SECOND),
        ({HOST.digest: None, SECOND.digest: None}, HOST),
    ):
        parts = judged(collect(scene.held), OFFERED, {**classes})
        assert [part.profile for part in parts if lost in entries_of(part)] == [judge.digest]


def test_an_answer_of_no_offered_profile_is_judged_by_one_that_renders_it_as_sealed() -> None:
    scene = Answered()
    (lost,) = answered_under(scene, THIRD)
    other = Renderer.load(Template("x" + CHATML), ByteEncoder())
    collected = collect(scene.held)
    for first, second, judge in (
        (other, RENDERER, SECOND),
        (RENDERER, other, HOST),
        (other, other, HOST),
    ):
        renderers = {HOST.digest: first, SECOND.digest: second}
        (part,) = judged(collected, renderers)
        assert (part.profile, entries_of(part)) == (judge.digest, [lost])


def test_no_class_is_asked_for_where_the_answer_states_none() -> None:
    scene = Answered()
    request = scene.ask("question", output_tokens_max=4)
    gathered = gather(scene.held, scene.ready(request), Contexts(0))
    planned = plan(gathered, profile=THIRD, renderer=RENDERER)
    lost = scene.answers_by(request, planned, lambda told: replace(told, numerics_class=None))
    (part,) = judged(collect(scene.held), OFFERED)
    assert (part.profile, entries_of(part)) == (HOST.digest, [lost])


def test_a_conversation_without_answers_has_one_part_without_any() -> None:
    assert judged(collect(Answered().held), OFFERED) == [Part(HOST.digest, ())]


def test_a_part_has_the_contexts_of_the_whole_conversation() -> None:
    scene = Answered()
    answered_under(scene, HOST, SECOND, HOST, SECOND)
    collected = collect(scene.held)
    whole = {one.case.entry: one for one in render_cases(collected, RENDERER, HOST.digest)}
    for part in judged(collected, OFFERED):
        assert [one.context for one in part.rendered] == [
            whole[entry].context for entry in entries_of(part)
        ]
        assert {one.problem for one in part.rendered} == {None}


def test_a_part_renders_no_more_than_the_ancestors_of_its_answers() -> None:
    scene = Answered()
    first, *_ = answered_under(scene, SECOND, HOST, HOST)
    collected = collect(scene.held)
    part = collected.part(lambda case: case.seal.profile == SECOND.digest)
    assert [sealed.case.entry for sealed in part.seals if sealed.case] == [first]
    assert len(part.seals) == 1
    last = collected.part(lambda case: case.entry == collected.order[-1])
    assert [sealed.seal_id for sealed in last.seals] == [s.seal_id for s in collected.seals]
    assert [sealed.case is None for sealed in last.seals] == [True, True, False]


def test_the_contexts_of_all_parts_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Answered()
    answered_under(scene, HOST, SECOND)
    collected = collect(scene.held)
    parts = judged(collected, OFFERED)
    tokens = sum(len(one.context.ids) for part in parts for one in part.rendered)
    monkeypatch.setattr(judges, "REPLAY_TOKENS_MAX", tokens)
    assert judged(collected, OFFERED) == parts
    monkeypatch.setattr(judges, "REPLAY_TOKENS_MAX", tokens - 1)
    with pytest.raises(ReplayTooLarge):
        judged(collected, OFFERED)


def test_an_answer_whose_profile_can_not_be_loaded_is_undecided() -> None:
    scene = Answered()
    (answer,) = answered_under(scene, HOST)
    ((one,),) = (part.rendered for part in judged(collect(scene.held), OFFERED))
    found = unjudged(one, ProfileTooLarge("too much"))
    assert (found.answer, found.outcome, found.cause) == (
        answer, Outcome.UNDECIDED, Cause.OTHER_WEIGHTS
    )  # fmt: skip
    assert found.detail == "PROFILE_TOO_LARGE: too much"
    assert (found.prompt_tokens, found.output_tokens) == (len(one.context.ids), 4)
    assert found.render_digest == Digest(one.case.seal.render_digest)
