"""Entries that came before their ancestors: complete, dropped, and by whom."""

from replica.ids import EntryId
from replica.log.entry import Entry
from replica.log.pending import PendingEntries
from tests.replica.log.small_log import SmallLog
from tests.support.writers import Writer, said

ABSENT = EntryId(b"\xaa" * 32)


class Held:
    """A line of a stranger's messages, of which none is admitted."""

    def __init__(self, count: int = 3) -> None:
        log = SmallLog()
        self.author = log.eve.public
        self.line: list[Entry] = []
        for _ in range(count):
            self.line.append(log.say(log.eve, *self.line[-1:]))
        self.pending = PendingEntries()

    def add(self, *numbers: int) -> list[bool]:
        """Add entries of the line, and mark as complete those that can be."""
        return [self._add(number) for number in numbers]

    def _add(self, number: int) -> bool:
        named = tuple(e.id for e in self.line[max(number - 1, 0) : number])
        is_complete = self.pending.add(self.line[number], named)
        ready = [self.line[number].id] if is_complete else []
        while ready:
            ready += self.pending.mark_complete(ready.pop())
        return is_complete

    def complete(self) -> set[int]:
        found = self.pending.complete_by([self.author])
        return {n for n, entry in enumerate(self.line) if entry.id in found}


def test_an_entry_is_complete_when_all_it_names_is() -> None:
    held = Held()
    assert held.add(0, 1) == [True, True]
    assert held.complete() == {0, 1}


def test_entries_that_come_backwards_are_completed_by_the_first() -> None:
    held = Held()
    assert held.add(2, 1) == [False, False]
    assert held.complete() == set()
    assert held.add(0) == [True]
    assert held.complete() == {0, 1, 2}


def test_a_dropped_entry_is_missing_for_all_that_follow_it() -> None:
    held = Held()
    held.add(0, 1, 2)
    held.pending.drop(held.line[0].id)
    assert held.complete() == set()
    held.add(0)
    assert held.complete() == {0, 1, 2}


def test_dropping_an_unknown_entry_changes_nothing() -> None:
    held = Held()
    held.add(0)
    held.pending.drop(ABSENT)
    assert held.complete() == {0}


def test_an_admitted_entry_leaves_its_followers_complete() -> None:
    held = Held()
    held.add(0, 1)
    held.pending.remove_admitted(held.line[0].id)
    assert list(held.pending.entries) == [held.line[1].id]
    assert held.complete() == {1}


def test_an_entry_comes_with_its_pending_ancestors_first() -> None:
    held = Held()
    held.add(2, 0, 1)
    assert held.pending.with_ancestors(held.line[2].id) == held.line
    assert held.pending.with_ancestors(held.line[1].id) == held.line[:2]
    assert held.pending.with_ancestors(ABSENT) == []


def test_missing_ids_are_neither_pending_nor_admitted() -> None:
    held = Held()
    held.add(2, 1)
    first, last = held.line[0].id, held.line[2].id
    assert held.pending.missing_for(last, (), 9) == [first]
    assert held.pending.missing_for(last, {first}, 9) == []
    assert first in held.pending.named_ids()


def test_the_bytes_held_are_those_of_the_pending_entries() -> None:
    held = Held()
    held.add(0, 2)
    assert held.pending.size_bytes == held.line[0].size_bytes + held.line[2].size_bytes
    held.pending.remove_admitted(held.line[0].id)
    held.pending.drop(held.line[2].id)
    assert held.pending.size_bytes == 0
    assert list(held.pending.named_ids()) == []


def test_a_body_that_comes_later_counts_with_its_bytes() -> None:
    held = Held(1)
    entry = held.line[0]
    bare = Entry(entry.header_bytes, entry.signature, None, entry.id, entry.header)
    held.pending.add(bare, ())
    held.pending.fill(entry)
    assert held.pending.entries[entry.id] is entry
    assert held.pending.size_bytes == entry.size_bytes


def state(held: Held) -> dict[str, object]:
    """Return all that pending entries keep."""
    return dict(vars(held.pending))


def test_all_that_are_dropped_together_leave_nothing() -> None:
    held = Held()
    held.add(2, 0, 1)
    entries = held.pending.entries
    held.pending.drop_all([ABSENT, *(entry.id for entry in held.line)])
    assert state(held) == state(Held())
    assert held.pending.entries is entries, "the log shows this one"


def test_some_that_are_dropped_together_leave_what_each_would() -> None:
    together, apart = Held(4), Held(4)
    for held in (together, apart):
        held.add(0, 1, 3)
    together.pending.drop_all([ABSENT, together.line[1].id, together.line[0].id])
    for number in (0, 1):
        apart.pending.drop(apart.line[number].id)
    assert [e.id for e in together.line] == [e.id for e in apart.line]
    assert state(together) == state(apart)
    assert set(together.pending.entries) == {together.line[3].id}


def test_what_many_entries_lack_is_what_each_of_them_lacks() -> None:
    held = Held()
    held.add(2, 1)
    ids = [entry.id for entry in held.line[1:3]]
    each = held.pending.missing_for_each(reversed(ids), (), 9)
    assert each == {i: tuple(held.pending.missing_for(i, (), 9)) for i in ids}
    assert held.pending.missing_for_each([ABSENT], (), 9) == {ABSENT: ()}
    assert held.pending.missing_for_each(ids, {held.line[0].id}, 9) == dict.fromkeys(ids, ())


def test_no_more_is_looked_for_than_is_asked_for() -> None:
    """An answer has to fit a frame, whatever graph of names a peer sends."""
    writer = Writer(3)
    genesis = writer.genesis()
    pending, names = PendingEntries(), [EntryId(b"%032d" % number) for number in range(100)]
    first = writer.write(genesis.conversation, said("x"), parents=[genesis])
    last = writer.write(genesis.conversation, said("y"), parents=[first])
    pending.add(first, tuple(names))
    pending.add(last, (first.id, names[0]))
    assert len(pending.missing_for(last.id, (), 1_000)) == 100
    for found in (pending.missing_for(last.id, (), 7), pending.missing_for_each([last.id], (), 7)):
        ids = found[last.id] if isinstance(found, dict) else found
        assert len(ids) == 7
        assert set(ids) <= set(names)
