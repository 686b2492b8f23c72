"""Events are frozen, and a match reads them by position."""

from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import get_args

import pytest

from antiphon.library import events as e
from replica.ids import EntryId, PublicKey

FIRST = {
    "Said": ("who", "text"),
    "Draft": ("text",),
    "ToolDone": ("call", "result"),
    "Forked": ("mine", "theirs"),
    "Answered": ("answer",),
    "Refused": ("reason", "detail"),
}


def test_every_event_is_a_frozen_dataclass_that_names_its_conversation():
    for kind in get_args(e.Event):
        assert is_dataclass(kind)
        names = [one.name for one in fields(kind)]
        assert kind is e.HostChanged or names[-1] == "conversation"
        assert tuple(names[: len(FIRST.get(kind.__name__, ()))]) == FIRST.get(kind.__name__, ())
    with pytest.raises(FrozenInstanceError):
        e.Draft("a").text = "b"  # type: ignore[misc]


def test_a_match_reads_the_first_fields():
    match e.Said(PublicKey(b"k"), "Hello.", EntryId(b"e")):
        case e.Said(who, text):
            assert (who, text) == (b"k", "Hello.")


def test_the_arguments_of_a_call_are_a_json_object():
    assert e.Call("1", "book", "").arguments == {}
    for wrong in ("[1]", "{", "3", "[" * 100_000):
        with pytest.raises(ValueError, match=r".*"):
            _ = e.Call("1", "book", wrong).arguments
