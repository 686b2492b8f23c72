"""Each answer of a replay is judged under its own profile, where this host offers it."""

from dataclasses import replace

import pytest

from model_host.errors import ProfileTooLarge, ReplayTooLarge
from model_host.generation import gather, plan
from model_host.profiles import Profile
from model_host.rendering import Contexts
from model_host.replay import judges
from model_host.replay.case import collect
from model_host.replay.judges import Part, parts_of, unjudged
from model_host.replay.rendering import render_cases
from replica.conversation import Cause, Outcome
from replica.ids import Digest, EntryId
from tests.model_host.rendering.test_render import RENDERER
from tests.model_host.replay.replayed import HOST, Answered

SECOND = replace(HOST, numerics="q4")
THIRD = replace(HOST, name="of another host")
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


def entries_of(part: Part) -> list[EntryId]:
    return [one.case.entry for one in part.rendered]


def test_each_answer_is_in_the_part_of_its_profile_and_others_are_in_the_defaults() -> None:
    scene = Answered()
    a, b, c, d = answered_under(scene, HOST, SECOND, THIRD, HOST)
    collected = collect(scene.held)
    for default, expected in (
        (SECOND, {SECOND: [b, c], HOST: [a, d]}),
        (HOST, {HOST: [a, c, d], SECOND: [b]}),
    ):
        found = parts_of(collected, default.digest, OFFERED)
        assert {part.profile: entries_of(part) for part in found} == {
            profile.digest: answers for profile, answers in expected.items()
        }
        assert found[0].profile == default.digest


def test_the_default_has_a_part_also_without_answers() -> None:
    scene = Answered()
    (answer,) = answered_under(scene, HOST)
    first, second = parts_of(collect(scene.held), SECOND.digest, OFFERED)
    assert (first.profile, first.rendered) == (SECOND.digest, ())
    assert entries_of(second) == [answer]
    assert parts_of(collect(Answered().held), HOST.digest, OFFERED) == [Part(HOST.digest, ())]


def test_a_part_has_the_contexts_of_the_whole_conversation() -> None:
    scene = Answered()
    answered_under(scene, HOST, SECOND, HOST, SECOND)
    collected = collect(scene.held)
    whole = {one.case.entry: one for one in render_cases(collected, RENDERER, HOST.digest)}
    for part in parts_of(collected, HOST.digest, OFFERED):
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
    parts = parts_of(collected, HOST.digest, OFFERED)
    tokens = sum(len(one.context.ids) for part in parts for one in part.rendered)
    monkeypatch.setattr(judges, "REPLAY_TOKENS_MAX", tokens)
    assert parts_of(collected, HOST.digest, OFFERED) == parts
    monkeypatch.setattr(judges, "REPLAY_TOKENS_MAX", tokens - 1)
    with pytest.raises(ReplayTooLarge):
        parts_of(collected, HOST.digest, OFFERED)


def test_an_answer_whose_profile_can_not_be_loaded_is_undecided() -> None:
    scene = Answered()
    (answer,) = answered_under(scene, HOST)
    ((one,),) = (part.rendered for part in parts_of(collect(scene.held), HOST.digest, OFFERED))
    found = unjudged(one, ProfileTooLarge("too much"))
    assert (found.answer, found.outcome, found.cause) == (
        answer, Outcome.UNDECIDED, Cause.OTHER_WEIGHTS
    )  # fmt: skip
    assert found.detail == "PROFILE_TOO_LARGE: too much"
    assert (found.prompt_tokens, found.output_tokens) == (len(one.context.ids), 4)
    assert found.render_digest == Digest(one.case.seal.render_digest)
