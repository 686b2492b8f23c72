"""The order in which keys get the steps of a busy hub."""

from replica.ids import PublicKey
from syncd.step_queue import StepQueue

ONE, TWO = PublicKey(b"1" * 32), PublicKey(b"2" * 32)


def served(queue: StepQueue[str], seconds: float = 0.001) -> list[str]:
    """Take all that wait, each of which spends the same time."""
    found = []
    while queue:
        key, name = queue.take()
        found.append(name)
        queue.note(key, seconds, 0.0)
    return found


def test_keys_take_turns_however_much_work_each_has() -> None:
    queue: StepQueue[str] = StepQueue()
    for number in range(4):
        queue.add(ONE, f"one {number}", 0.0)
    queue.add(TWO, "two 0", 0.0)
    queue.add(TWO, "two 1", 0.0)
    assert served(queue) == ["one 0", "two 0", "one 1", "two 1", "one 2", "one 3"]


def test_a_key_that_spent_less_goes_first() -> None:
    queue: StepQueue[str] = StepQueue()
    queue.note(ONE, 0.5, 0.0)
    queue.add(ONE, "heavy", 0.0)
    queue.add(TWO, "light", 0.0)
    assert served(queue) == ["light", "heavy"]


def test_a_key_that_spends_more_waits_longer_for_its_next() -> None:
    queue: StepQueue[str] = StepQueue()
    for number in range(3):
        queue.add(ONE, f"one {number}", 0.0)
        queue.add(TWO, f"two {number}", 0.0)
    found = []
    while queue:
        key, name = queue.take()
        found.append(name)
        queue.note(key, 0.1 if key == ONE else 0.01, 0.0)
    assert found == ["one 0", "two 0", "two 1", "two 2", "one 1", "one 2"]


def test_a_step_without_a_queue_is_counted_too() -> None:
    queue: StepQueue[str] = StepQueue()
    queue.note(ONE, 0.5, 0.0)
    assert not queue
    queue.add(ONE, "one", 0.0)
    assert queue
    queue.add(TWO, "two", 0.0)
    assert served(queue) == ["two", "one"]
    assert not queue


def test_work_added_while_its_key_is_served_waits_for_the_count() -> None:
    queue: StepQueue[str] = StepQueue()
    queue.add(ONE, "first", 0.0)
    queue.add(TWO, "other", 0.0)
    key, _ = queue.take()
    queue.add(ONE, "second", 0.0)
    queue.note(key, 0.1, 0.0)
    assert served(queue) == ["other", "second"]
