"""Where the tokens of each entry are, and which entries are the current context."""

import random

import pytest

from model_host.page_map import EntryPages, Located, entry_pages, gather_current
from model_host.plan import render_branch
from replica.ids import EntryId
from replica.log.body import FinishReason, Generation, Message, Request, Text
from tests.model_host.planned import Scene
from tests.model_host.test_render import END, RENDERER

ANSWER = Generation((97, END), (Text("a"),), 1, FinishReason.STOP)


def entry(number: int) -> EntryId:
    return EntryId(bytes([number]) * 32)


def test_tokens_lie_in_the_first_place_that_reaches_them() -> None:
    found = entry_pages(
        [(entry(1), 100), (entry(2), 0), (entry(3), 100), (entry(4), 10)],
        Located(own_tokens=50, memory_tokens=120, stored_tokens=150),
        shows_shared=True,
    )
    assert found == [
        EntryPages(entry(1), 50, 50, 0, 0),
        EntryPages(entry(2), 0, 0, 0, 0),
        EntryPages(entry(3), 0, 20, 30, 50),
        EntryPages(entry(4), 0, 0, 0, 10),
    ]


def test_shared_pages_do_not_count_to_others_than_the_first_owner() -> None:
    tokens = [(entry(1), 100), (entry(2), 100)]
    for stored in (0, 60, 200):
        alone = entry_pages(tokens, Located(50, 50, stored), shows_shared=False)
        beside = entry_pages(tokens, Located(50, 130, stored), shows_shared=False)
        assert alone == beside


@pytest.mark.parametrize("seed", range(20))
def test_each_token_is_in_one_place(seed: int) -> None:
    chance = random.Random(seed)
    tokens = [(entry(n), chance.randrange(40)) for n in range(10)]
    own = chance.randrange(400)
    located = Located(own, own + chance.randrange(100), chance.randrange(400))
    for shows_shared in (True, False):
        at = 0
        for one, (_, count) in zip(
            entry_pages(tokens, located, shows_shared=shows_shared), tokens, strict=True
        ):
            naive = [_place(position, located, shows_shared) for position in range(at, at + count)]
            kept = (one.cached_tokens, one.shared_tokens, one.stored_tokens, one.absent_tokens)
            assert kept == tuple(naive.count(place) for place in range(4))
            at += count


def _place(position: int, located: Located, shows_shared: bool) -> int:
    if position < located.own_tokens:
        return 0
    if shows_shared and position < located.memory_tokens:
        return 1
    return 2 if position < located.stored_tokens else 3


# --- the current context ------------------------------------------------------------------


def kinds(scene: Scene) -> list[type]:
    """Return the kinds of the entries that the current context of the newest branch has."""
    tips = scene.held.order.tips()
    branch = gather_current(scene.held, tips[-1] if tips else None)
    return [type(item.body) for listing in branch.listings for item in listing.items]


def test_a_conversation_without_a_seal_has_what_is_written() -> None:
    scene = Scene()
    assert kinds(scene) == []
    scene.ask()
    assert kinds(scene) == [Message, Request]


def test_the_answer_and_what_follows_belong_to_the_context() -> None:
    scene = Scene()
    scene.answer(scene.ask("first"), ANSWER)
    assert kinds(scene) == [Message, Request, Generation]
    scene.ask("second")
    assert kinds(scene) == [Message, Request, Generation, Message, Request]


def test_the_next_seal_renders_what_the_current_context_has() -> None:
    scene = Scene()
    scene.answer(scene.ask("first"), ANSWER)
    request = scene.ask("second")
    rendered = render_branch(gather_current(scene.held, scene.held.order.tips()[-1]), RENDERER)
    assert rendered.context.ids == scene.plan(request).prompt
