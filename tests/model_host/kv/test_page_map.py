"""Where the tokens of each entry are."""

import random

import pytest

from model_host.kv.page_map import EntryPages, Located, entry_pages
from replica.ids import EntryId


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
