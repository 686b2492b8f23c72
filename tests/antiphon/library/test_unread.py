"""Unread events keep the words of members, and the text of each answer."""

from antiphon.library import events as e
from antiphon.library.unread import with_joined_drafts
from replica.ids import EntryId, PublicKey

ONE, TWO = EntryId(b"1" * 32), EntryId(b"2" * 32)


def test_unread_drafts_of_an_answer_are_joined() -> None:
    said = e.Said(PublicKey(b"k"), "Hello.")
    events: list[e.Event] = [
        e.Draft("a", ONE), e.Draft("x", TWO), said, e.Draft("b", ONE), e.Draft("y", TWO),
        e.Discarded(ONE), e.Draft("c", ONE), e.Draft("d", ONE), e.Draft("z", TWO),
    ]  # fmt: skip
    assert with_joined_drafts(events) == [
        e.Draft("ab", ONE), e.Draft("xyz", TWO), said, e.Discarded(ONE), e.Draft("cd", ONE)
    ]  # fmt: skip
