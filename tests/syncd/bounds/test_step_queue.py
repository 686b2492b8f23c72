"""The order in which keys get the steps of a busy hub."""

import random
from collections import Counter

import pytest

from replica.ids import PublicKey
from syncd.bounds.shares import Payer
from syncd.bounds.step_queue import REMEMBERED_MAX, StepQueue

ONE, TWO = (Payer(b"pool", PublicKey(one * 32)) for one in (b"1", b"2"))
OTHER = Payer(b"other pool", PublicKey(b"3" * 32))


def served(queue: StepQueue[str], seconds: float = 0.001) -> list[str]:
    """Take all that wait, each of which spends the same time."""
    found = []
    while queue:
        key, name = queue.take()
        found.append(name)
        queue.note(key, seconds)
    return found


def test_keys_take_turns_however_much_work_each_has() -> None:
    queue: StepQueue[str] = StepQueue()
    for number in range(4):
        queue.add(ONE, f"one {number}")
    queue.add(TWO, "two 0")
    queue.add(TWO, "two 1")
    assert served(queue) == ["one 0", "two 0", "one 1", "two 1", "one 2", "one 3"]


def test_a_key_that_spent_less_goes_first() -> None:
    queue: StepQueue[str] = StepQueue()
    queue.note(ONE, 0.5)
    queue.add(ONE, "heavy")
    queue.add(TWO, "light")
    assert served(queue) == ["light", "heavy"]


def test_a_key_that_spends_more_waits_longer_for_its_next() -> None:
    queue: StepQueue[str] = StepQueue()
    for number in range(3):
        queue.add(ONE, f"one {number}")
        queue.add(TWO, f"two {number}")
    found = []
    while queue:
        key, name = queue.take()
        found.append(name)
        queue.note(key, 0.1 if key == ONE else 0.01)
    assert found == ["one 0", "two 0", "two 1", "two 2", "one 1", "one 2"]


def test_a_step_without_a_queue_is_counted_too() -> None:
    queue: StepQueue[str] = StepQueue()
    queue.note(ONE, 0.5)
    assert not queue
    queue.add(ONE, "one")
    assert queue
    queue.add(TWO, "two")
    assert served(queue) == ["two", "one"]
    assert not queue


def test_work_added_while_its_key_is_served_waits_for_the_count() -> None:
    queue: StepQueue[str] = StepQueue()
    queue.add(ONE, "first")
    queue.add(TWO, "other")
    key, _ = queue.take()
    queue.add(ONE, "second")
    queue.note(key, 0.1)
    assert served(queue) == ["other", "second"]


def test_a_pool_whose_step_took_less_goes_first_whatever_its_keys_did() -> None:
    queue: StepQueue[str] = StepQueue()
    for payer, name in ((ONE, "one"), (OTHER, "other"), (TWO, "two"), (OTHER, "other again")):
        queue.add(payer, name)
    found = []
    while queue:
        payer, name = queue.take()
        found.append(name)
        queue.note(payer, 0.1 if payer == OTHER else 0.2)
    assert found == ["one", "other", "other again", "two"]


def test_a_pool_that_did_nothing_for_long_has_no_credit() -> None:
    """Else its keys would have all steps until they had as much, and others none."""
    queue: StepQueue[str] = StepQueue()
    for _ in range(1_000):
        queue.note(OTHER, 0.01)
    for number in range(10):
        queue.add(ONE, f"one {number}")
    queue.add(OTHER, "other")
    assert served(queue, 0.01).index("other") <= 1


def test_the_payers_remembered_are_bounded() -> None:
    queue: StepQueue[str] = StepQueue()
    for number in range(3 * REMEMBERED_MAX):
        key = PublicKey(number.to_bytes(32, "big"))
        queue.note(Payer(b"pool", key), 0.001)
        queue.note(Payer(key, key), 0.001)
    orders = queue._payers
    assert len(orders) <= REMEMBERED_MAX + 1
    assert all(len(order.ends) <= REMEMBERED_MAX for order in (queue._pools, *orders.values()))


@pytest.mark.parametrize("seed", range(20))
def test_all_that_waits_is_taken_once_whatever_the_order_of_calls(seed: int) -> None:
    chance = random.Random(seed)
    payers = [Payer(pool, PublicKey(bytes([n]) * 32)) for pool in (b"a", b"b") for n in range(3)]
    queue: StepQueue[int] = StepQueue()
    serving: Payer | None = None
    taken, added = list[int](), 0
    while added < 200 or queue or serving is not None:
        kind = chance.choice(("add", "take", "note", "step alone"))
        if kind == "add" and added < 200:
            queue.add(chance.choice(payers), added)
            added += 1
        elif kind == "take" and queue and serving is None:
            serving, number = queue.take()
            taken.append(number)
        elif kind == "note" and serving is not None:
            queue.note(serving, chance.random())
            serving = None
        elif kind == "step alone" and serving is None:
            queue.note(chance.choice(payers), chance.random())
    assert sorted(taken) == list(range(200))


def test_one_that_did_much_once_has_its_share_again_while_others_are_busy() -> None:
    queue: StepQueue[Payer] = StepQueue()
    payers = [Payer(b"once", PublicKey(b"1" * 32)), ONE, OTHER]
    step_s = 0.01
    queue.add(payers[0], payers[0])
    served: Counter[Payer] = Counter()
    for _ in range(6_000):  # a minute alone
        payer, _ = queue.take()
        queue.note(payer, step_s)
        queue.add(payer, payer)
    for payer in payers[1:]:
        queue.add(payer, payer)
    for _ in range(12_000):  # two minutes with the others
        payer, _ = queue.take()
        queue.note(payer, step_s)
        queue.add(payer, payer)
        served[payer] += 1
    assert min(served[payer] for payer in payers) > 12_000 // 5


def test_a_key_precedes_those_that_wait_if_it_had_less_and_waits_for_nothing() -> None:
    queue: StepQueue[str] = StepQueue()
    assert queue.precedes(ONE)
    queue.note(ONE, 0.5)
    queue.note(OTHER, 0.2)
    queue.add(OTHER, "other")
    assert not queue.precedes(ONE)  # its pool had more
    assert not queue.precedes(TWO)
    assert not queue.precedes(OTHER)  # it waits itself
    queue.add(ONE, "one")
    assert queue.precedes(Payer(b"third pool", PublicKey(b"4" * 32)))
    assert not queue.precedes(TWO)  # its pool is behind the other one
    assert queue.take()[1] == "other"
    queue.note(OTHER, 0.0)
    assert queue.precedes(TWO)
