"""Unread events keep the words of members, and the text of each answer."""

from itertools import repeat

from antiphon.library import events as e
from antiphon.library.unread import Unread
from replica.ids import EntryId, PublicKey

ONE, TWO = EntryId(b"1" * 32), EntryId(b"2" * 32)
SAID = e.Said(PublicKey(b"k"), "Hello.")

EVENTS: list[e.Event] = [
    e.Draft("a", ONE), e.Draft("x", TWO), SAID, e.Draft("b", ONE), e.Draft("y", TWO),
    e.Discarded(ONE), e.Draft("c", ONE), e.Draft("d", ONE), e.Draft("z", TWO),
]  # fmt: skip
JOINED: list[e.Event] = [
    e.Draft("ab", ONE), e.Draft("xyz", TWO), SAID, e.Discarded(ONE), e.Draft("cd", ONE)
]  # fmt: skip


def test_events_that_have_places_are_kept_as_they_came() -> None:
    unread = Unread(len(EVENTS))
    unread.add(EVENTS)
    assert (unread.taken(), unread.is_full, bool(unread)) == (EVENTS, False, False)


def test_unread_drafts_of_an_answer_are_joined() -> None:
    for most in range(len(JOINED), len(EVENTS)):
        unread = Unread(most)
        unread.add(EVENTS)
        assert (unread.taken(), unread.is_full) == (JOINED, False)


def test_drafts_are_joined_anew_once_the_reader_has_read() -> None:
    unread = Unread(len(JOINED))
    unread.add(EVENTS)
    unread.taken()
    unread.add([e.Draft("1", ONE), e.Draft("2", ONE)])
    assert unread.taken() == [e.Draft("1", ONE), e.Draft("2", ONE)]


def test_nothing_is_kept_behind_an_event_without_a_place() -> None:
    unread = Unread(2)
    unread.add([SAID, e.Draft("a", ONE), e.Draft("x", TWO), e.Draft("b", ONE)])
    unread.add([e.Draft("c", ONE)])
    assert (unread.taken(), unread.is_full) == ([SAID, e.Draft("a", ONE)], True)
    unread.add([SAID])
    assert not unread


def test_a_draft_that_is_joined_costs_nothing_that_grows_with_the_events() -> None:
    reads = 0

    class Counted(e.Said):
        def __getattribute__(self, name: str) -> object:
            nonlocal reads
            reads += 1
            return super().__getattribute__(name)

    unread = Unread(100)
    unread.add([e.Draft("a", ONE), *repeat(Counted(PublicKey(b"k"), "Hello."), 99)])
    unread.add([e.Draft("b", ONE)])  # joins
    before = reads
    unread.add(repeat(e.Draft("c", ONE), 1_000))
    assert reads == before
    assert unread.taken()[0] == e.Draft("ab" + "c" * 1_000, ONE)
