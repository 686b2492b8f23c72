"""The queue of ids of one channel: single ids once, sequences as they are, all in order."""

import pytest

from replica.ids import EntryId
from replica.link.outgoing import Outgoing
from tests.support.call_count import calls

A, B, C, D = (EntryId(bytes([n]) * 32) for n in range(4))


def drained(queue: Outgoing) -> list[EntryId]:
    return [queue.pop() for _ in range(len(queue))]


def test_single_ids_come_in_order_and_once() -> None:
    queue = Outgoing()
    for entry_id in (A, B, A):
        queue.add(entry_id)
    assert A in queue
    assert drained(queue) == [A, B]
    assert A not in queue
    queue.add(A)
    assert drained(queue) == [A]


def test_a_sequence_comes_behind_what_was_queued_and_before_what_follows() -> None:
    queue = Outgoing()
    queue.add(A)
    queue.share((B, C))
    queue.add(D)
    assert (len(queue), queue.is_long) == (4, True)
    assert [queue.pop() for _ in range(3)] == [A, B, C]
    assert not queue.is_long
    assert drained(queue) == [D]


def test_sequences_come_one_after_the_other() -> None:
    queue = Outgoing()
    queue.share((A, B))
    queue.share((C,))
    assert drained(queue) == [A, B, C]
    assert not queue


def test_an_empty_sequence_is_nothing() -> None:
    queue = Outgoing()
    queue.share(())
    assert not queue
    assert not queue.is_long
    with pytest.raises(IndexError):
        queue.pop()


def test_an_id_of_a_sequence_may_be_queued_by_itself_too() -> None:
    queue = Outgoing()
    queue.share((A,))
    assert A not in queue
    queue.add(A)
    assert drained(queue) == [A, A]


def test_a_sequence_takes_little_memory_for_each_that_has_it() -> None:
    single, shared = Outgoing(), Outgoing()
    ids = tuple(EntryId(n.to_bytes(32, "big")) for n in range(1_000))
    for entry_id in ids:
        single.add(entry_id)
    shared.share(ids)
    assert single.memory_bytes > 100_000
    assert 0 < shared.memory_bytes < 10_000
    for _ in ids:
        shared.pop()
    assert shared.memory_bytes == 0


def test_the_length_costs_the_same_however_many_sequences_there_are() -> None:
    def work(sequences: int) -> int:
        queue = Outgoing()
        for _ in range(sequences):
            queue.share((A, B))
        return calls(lambda: len(queue)) + calls(lambda: bool(queue)) + calls(queue.pop)

    assert work(1_000) == work(2)
