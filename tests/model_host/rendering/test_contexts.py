"""Contexts kept by seal: the ones used longest ago make room."""

from model_host.rendering.contexts import Contexts
from model_host.rendering.render import Context
from replica.ids import Digest, EntryId
from tests.model_host.rendering.test_render import ENCODER, RENDERER, items, render, user


def seal(number: int) -> EntryId:
    return EntryId(bytes([number]) * 32)


def context(tokens: int) -> Context:
    return Context(tuple(range(tokens)), Digest(bytes(32)))


def test_a_context_is_found_by_its_seal():
    kept, one = Contexts(), context(3)
    kept.keep(seal(1), one)
    assert kept.get(seal(1)) is one
    assert kept.get(seal(2)) is None


def test_the_context_used_longest_ago_makes_room():
    kept = Contexts(3 * 2000)
    for number in (1, 2, 3):
        kept.keep(seal(number), context(20))
    kept.get(seal(1))
    kept.keep(seal(4), context(20))
    assert [kept.get(seal(n)) is not None for n in (1, 2, 3, 4)] == [True, False, True, True]
    assert kept.size_bytes <= 3 * 2000


def test_a_context_kept_twice_counts_once():
    kept = Contexts()
    kept.keep(seal(1), context(20))
    before = kept.size_bytes
    kept.keep(seal(1), context(20))
    assert kept.size_bytes == before


def test_a_context_larger_than_the_budget_is_not_kept():
    kept = Contexts(2000)
    kept.keep(seal(1), context(1000))
    assert kept.get(seal(1)) is None
    assert kept.size_bytes == 0


def test_the_size_of_a_context_counts_what_its_template_runs_over_again():
    assert ENCODER.token_count
    short = render(items(user("a"))).context
    assert render(items(user("a" * 100))).context.size_bytes > short.size_bytes
    assert RENDERER.empty.size_bytes == 0
