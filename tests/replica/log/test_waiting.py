"""Entries that came before what they follow: complete, released, and by whom."""

from replica.ids import EntryId
from replica.log.entry import Entry
from replica.log.waiting import Waiting
from tests.replica.log.pad import Pad

ABSENT = EntryId(b"\xaa" * 32)


class Held:
    """A line of a stranger's messages, of which none is admitted."""

    def __init__(self, count: int = 3) -> None:
        pad = Pad()
        self.author = pad.eve.public
        self.line: list[Entry] = []
        for _ in range(count):
            self.line.append(pad.say(pad.eve, *self.line[-1:]))
        self.waiting = Waiting()

    def hold(self, *numbers: int) -> list[bool]:
        """Hold entries of the line, and complete those that can be."""
        return [self._hold(number) for number in numbers]

    def _hold(self, number: int) -> bool:
        named = tuple(e.id for e in self.line[max(number - 1, 0) : number])
        is_complete = self.waiting.hold(self.line[number], named)
        ready = [self.line[number].id] if is_complete else []
        while ready:
            ready += self.waiting.complete(ready.pop())
        return is_complete

    def complete(self) -> set[int]:
        found = self.waiting.by([self.author])
        return {n for n, entry in enumerate(self.line) if entry.id in found}


def test_an_entry_is_complete_when_all_it_names_is() -> None:
    held = Held()
    assert held.hold(0, 1) == [True, True]
    assert held.complete() == {0, 1}


def test_entries_that_come_backwards_are_completed_by_the_first() -> None:
    held = Held()
    assert held.hold(2, 1) == [False, False]
    assert held.complete() == set()
    assert held.hold(0) == [True]
    assert held.complete() == {0, 1, 2}


def test_a_released_entry_is_lacked_by_all_that_follows_it() -> None:
    held = Held()
    held.hold(0, 1, 2)
    held.waiting.release(held.line[0].id)
    assert held.complete() == set()
    held.hold(0)
    assert held.complete() == {0, 1, 2}


def test_to_release_what_does_not_wait_changes_nothing() -> None:
    held = Held()
    held.hold(0)
    held.waiting.release(ABSENT)
    assert held.complete() == {0}


def test_an_admitted_entry_leaves_what_follows_it_complete() -> None:
    held = Held()
    held.hold(0, 1)
    held.waiting.admit(held.line[0].id)
    assert list(held.waiting.entries) == [held.line[1].id]
    assert held.complete() == {1}


def test_a_lineage_is_all_an_entry_waits_for_ancestors_first() -> None:
    held = Held()
    held.hold(2, 0, 1)
    assert held.waiting.lineage(held.line[2].id) == held.line
    assert held.waiting.lineage(held.line[1].id) == held.line[:2]
    assert held.waiting.lineage(ABSENT) == []


def test_an_entry_lacks_what_is_neither_here_nor_admitted() -> None:
    held = Held()
    held.hold(2, 1)
    first, last = held.line[0].id, held.line[2].id
    assert held.waiting.lacking(last, ()) == [first]
    assert held.waiting.lacking(last, {first}) == []
    assert first in held.waiting.names()


def test_the_bytes_held_are_those_of_the_entries_that_wait() -> None:
    held = Held()
    held.hold(0, 2)
    assert held.waiting.size_bytes == held.line[0].size_bytes + held.line[2].size_bytes
    held.waiting.admit(held.line[0].id)
    held.waiting.release(held.line[2].id)
    assert held.waiting.size_bytes == 0
    assert list(held.waiting.names()) == []


def test_a_body_that_comes_later_counts_with_its_bytes() -> None:
    held = Held(1)
    entry = held.line[0]
    bare = Entry(entry.header_bytes, entry.signature, None, entry.id, entry.header)
    held.waiting.hold(bare, ())
    held.waiting.fill(entry)
    assert held.waiting.entries[entry.id] is entry
    assert held.waiting.size_bytes == entry.size_bytes
