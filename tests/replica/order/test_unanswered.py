"""Requests without an answer, in order(x) and whatever the order of their arrival."""

from random import Random

from replica.order.unanswered import Unanswered
from tests.support.sample import Sample


def test_the_latest_come_first_in_any_order_of_arrival() -> None:
    sample = Sample()
    entries = list(sample.chain(9))
    expected = [e.id for e in sorted(entries, key=lambda e: e.order_key, reverse=True)]
    for seed in range(5):
        Random(seed).shuffle(entries)
        unanswered = Unanswered()
        for entry in (*entries, entries[0]):  # one is added twice
            unanswered.add(entry)
        assert list(unanswered.latest()) == expected
        assert len(unanswered) == 9


def test_what_is_discarded_is_gone_and_the_others_stay() -> None:
    sample = Sample()
    first, second, third = sample.chain(3)
    unanswered = Unanswered()
    for entry in (third, first):
        unanswered.add(entry)
    unanswered.discard(second)  # never added
    unanswered.discard(third)
    unanswered.discard(third)
    assert list(unanswered.latest()) == [first.id]
