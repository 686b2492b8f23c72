"""Requests without an answer, in order(x) and whatever the order of their arrival."""

from itertools import islice
from random import Random

import pytest

from replica.ids import EntryId, PublicKey
from replica.order import unanswered as module
from replica.order.unanswered import Unanswered
from tests.support.sample import Sample

HOST, OTHER, THIRD = (PublicKey(one * 32) for one in (b"h", b"o", b"t"))


def test_the_latest_come_first_in_any_order_of_arrival() -> None:
    sample = Sample()
    entries = list(sample.chain(9))
    expected = [e.id for e in sorted(entries, key=lambda e: e.order_key, reverse=True)]
    for seed in range(5):
        Random(seed).shuffle(entries)
        unanswered = Unanswered()
        for entry in (*entries, entries[0]):  # one is added twice
            unanswered.add(entry, HOST)
        assert list(unanswered.latest()) == expected
        assert len(unanswered) == 9


def test_what_is_discarded_is_gone_and_the_others_stay() -> None:
    sample = Sample()
    first, second, third = sample.chain(3)
    unanswered = Unanswered()
    for entry in (third, first):
        unanswered.add(entry, HOST)
    unanswered.discard(second)  # never added
    unanswered.discard(third)
    unanswered.discard(third)
    assert list(unanswered.latest()) == [first.id]


def test_those_without_a_seal_are_told_apart_as_requests_come_and_go() -> None:
    entries = list(Sample().chain(9))
    for seed in range(20):
        random, unanswered, sealed = Random(seed), Unanswered(), set[EntryId]()
        for _ in range(80):
            entry, chance = random.choice(entries), random.random()
            if chance < 0.5 and entry.id not in sealed:
                unanswered.add(entry, HOST)
            elif chance < 0.7:
                unanswered.seal(entry, HOST)
                sealed.add(entry.id)
            else:
                unanswered.discard(entry)
                sealed.discard(entry.id)
            expected = [one for one in unanswered.latest() if one not in sealed]
            assert list(unanswered.latest_unsealed()) == expected


def test_the_hosts_are_those_of_the_latest_as_requests_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compared with a look at the latest ones after each change."""
    monkeypatch.setattr(module, "LATEST", 3)
    entries = list(Sample().chain(9))
    for seed in range(20):
        random, unanswered = Random(seed), Unanswered()
        host_of = {entry.id: random.choice((HOST, OTHER, THIRD, None)) for entry in entries}
        for _ in range(60):
            entry = random.choice(entries)
            if random.random() < 0.6:
                unanswered.add(entry, host_of[entry.id])
            else:
                unanswered.discard(entry)
            latest = {host_of[one] for one in islice(unanswered.latest(), 3)}
            assert set(unanswered.hosts) == latest - {None}
            left = sorted((e for e in entries if e.id in unanswered), key=lambda e: e.order_key)
            named = [entry.id for entry in left if host_of[entry.id] == HOST]
            assert list(unanswered.naming(HOST)) == named
