"""Guesses of the next tokens: looked up in earlier ones, as many as pay."""

import random
from collections.abc import Sequence

import pytest

from model_host.batching.speculation import (
    GUESSES_MAX,
    MATCH_MAX,
    MATCH_MIN,
    PLACES_MAX,
    Lookup,
    Speculation,
    worthwhile,
)


def naive(ids: Sequence[int], count: int) -> tuple[int, tuple[int, ...]]:
    """Look up without an index: compare the last places one by one."""
    end, best, longest = len(ids), 0, 0
    places = [p for p in range(MATCH_MIN, end) if [*ids[p - 2 : p]] == [*ids[-2:]]]
    for place in places[::-1][:PLACES_MAX]:
        length = next(
            n for n in range(MATCH_MAX, 0, -1)
            if n <= place and [*ids[place - n : place]] == [*ids[end - n :]]
        )  # fmt: skip
        if length > longest:
            best, longest = place, length
    if not best:
        return 0, ()
    found = list(ids)
    for i in range(count):
        found.append(found[best + i])
    return longest, tuple(found[end:])


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ([], (0, ())),
        ([1], (0, ())),
        ([1, 2, 3], (0, ())),
        ([1, 2, 3, 9, 1, 2], (2, (3, 9, 1))),
        ([1, 2, 3, 9, 1, 2, 4, 9, 1, 2], (3, (4, 9, 1))),
        ([7, 1, 2, 5, 8, 1, 2, 6, 7, 1, 2], (3, (5, 8, 1))),  # the longest match, not the latest
        ([1, 2, 3, 1, 2, 4, 1, 2], (2, (4, 1, 2))),  # of equal ones the latest
        ([5, 5, 5], (2, (5, 5, 5))),
        ([1, 2, 1, 2, 1], (3, (2, 1, 2))),  # a list that repeats itself
    ],
)
def test_the_tokens_behind_the_longest_and_latest_match_are_guessed(
    ids: list[int], found: tuple[int, tuple[int, ...]]
):
    assert Lookup(ids).find(3) == found == (naive(ids, 3) if len(ids) > 1 else (0, ()))


@pytest.mark.parametrize("seed", range(30))
def test_a_growing_list_is_searched_as_if_from_nothing(seed: int):
    dice = random.Random(seed)
    ids = dice.choices(range(dice.choice((2, 5, 40))), k=dice.randrange(30))
    lookup = Lookup(ids)
    for _ in range(200):
        count = dice.randrange(1, 9)
        if len(ids) > 1 and dice.random() < 0.7:
            assert lookup.find(count) == naive(ids, count)
        ids.append(dice.choice(ids) if ids and dice.random() < 0.5 else dice.randrange(5))


def test_no_tokens_are_found_where_none_are_asked_for():
    assert Lookup([1, 1, 1, 1]).find(0) == (0, ())


@pytest.mark.parametrize(
    ("rate", "cost", "sequences", "count"),
    [
        (0.0, 0.0, 1, 0),
        (0.9, 0.0, 1, GUESSES_MAX),
        (0.9, 0.1, 1, 7),
        (0.5, 0.1, 1, 2),
        (0.3, 0.1, 1, 1),
        (0.1, 0.1, 1, 0),
        (0.5, 0.6, 1, 0),
        (0.5, 0.1, 4, 1),
        (0.3, 0.1, 4, 0),
    ],
)
def test_as_many_guesses_are_computed_as_pay(rate: float, cost: float, sequences: int, count: int):
    assert worthwhile(rate, cost, sequences) == count


@pytest.mark.parametrize("seed", range(20))
def test_no_other_number_of_guesses_gives_more_tokens_per_time(seed: int):
    dice = random.Random(seed)
    rate, cost, sequences = dice.random(), dice.random() / 2, dice.randrange(1, 5)

    def tokens_per_time(count: int) -> float:
        return (sequences + sum(rate**i for i in range(1, count + 1))) / (1 + cost * count)

    best = max(map(tokens_per_time, range(GUESSES_MAX + 1)))
    assert tokens_per_time(worthwhile(rate, cost, sequences)) == pytest.approx(best)


def guess_and_note(ids: list[int], speculation: Speculation, answer: Sequence[int]) -> list[int]:
    """Let a text be written in steps; return the number of guesses of each."""
    counts, at = [], 0
    while at < len(answer):
        speculation.guess(GUESSES_MAX, row_cost=0.1, sequences=1)
        guesses = speculation.guesses
        right = 0
        while right < len(guesses) and answer[at + right : at + right + 1] == [guesses[right]]:
            right += 1
        chosen = answer[at : at + right + 1]
        ids += chosen
        at += len(chosen)
        speculation.note(chosen)
        counts.append(len(guesses))
    return counts


def test_a_text_that_repeats_itself_is_guessed_in_ever_fewer_steps():
    ids = list(range(50))
    counts = guess_and_note(ids, Speculation(ids), list(range(5, 50)) * 2)
    assert counts[-2] == GUESSES_MAX
    assert len(counts) < 30


def test_guesses_end_where_they_are_wrong_and_begin_again_where_they_are_right():
    dice = random.Random(1)
    ids = dice.choices(range(3), k=100)  # pairs are found everywhere, and predict nothing
    speculation = Speculation(ids)
    wrong = guess_and_note(ids, speculation, [100 + n for n in range(5)] * 1)
    assert wrong  # no match, no guess
    noise = [t for n in range(120) for t in (n % 3, (n * n) % 3, 200 + n)]
    counts = guess_and_note(ids, speculation, noise)
    assert sum(counts[-60:]) <= sum(counts[:60])
    again = guess_and_note(ids, speculation, list(range(300, 330)) * 6)
    assert max(again) == GUESSES_MAX


def test_a_guess_that_was_dropped_is_not_judged_as_computed():
    ids = [1, 2, 3, 1, 2]
    speculation = Speculation(ids)
    speculation.guess(3, row_cost=0.0, sequences=1)
    assert speculation.guesses == (3, 1, 2)
    speculation.drop()
    assert speculation.guesses == ()
    speculation.note([3])
    assert speculation.guesses == ()
