"""The context behind an entry is a prefix of the one that a request there has."""

import pytest

from model_host.contexts import Contexts
from model_host.plan import render_branch
from model_host.prospect import gather_at
from replica.ids import EntryId
from replica.log.body import FinishReason, Generation
from replica.refusals import ArgumentInvalid
from tests.model_host.planned import Scene
from tests.model_host.test_render import RENDERER

ANSWER = Generation((5, 6), (), 0, FinishReason.STOP)


def ids_at(scene: Scene, entry_id: EntryId) -> tuple[int, ...]:
    branch = gather_at(scene.held, entry_id, Contexts(0))
    return render_branch(branch, RENDERER).context.ids


def test_the_context_behind_a_message_is_a_prefix_of_its_requests() -> None:
    scene = Scene()
    request = scene.ask("hello")
    (message,) = scene.held.log.entries[request].header.parents
    planned = scene.plan(request)
    before = ids_at(scene, message)
    assert before
    assert planned.prompt[: len(before)] == before
    assert len(before) < len(planned.prompt)


def test_the_context_of_a_seal_is_the_one_it_states() -> None:
    scene = Scene()
    request = scene.ask("hello")
    prompt = scene.plan(request).prompt
    scene.answer(request, ANSWER)
    assert ids_at(scene, scene.held.order.seal_of[request]) == prompt


def test_the_context_behind_an_answer_has_the_answer() -> None:
    scene = Scene()
    first = scene.ask("hello")
    prompt = scene.plan(first).prompt
    answered = scene.answer(first, ANSWER)
    before = ids_at(scene, answered)
    assert before[: len(prompt)] == prompt
    assert before[len(prompt) :][:2] == (5, 6)
    later = scene.plan(scene.ask("more")).prompt
    assert later[: len(before)] == before


def test_an_entry_that_is_not_there_or_that_none_can_follow_is_refused() -> None:
    scene = Scene()
    granted = next(i for i in scene.held.log.entries if i != scene.genesis.id)
    for entry_id in (EntryId(b"?" * 32), granted):
        with pytest.raises(ArgumentInvalid):
            gather_at(scene.held, entry_id, Contexts(0))
    assert ids_at(scene, EntryId(scene.genesis.id)) == ()
