"""Events of a link: told apart by type, and by their contents alone."""

from dataclasses import FrozenInstanceError
from typing import get_args

import pytest

from replica.ids import ConversationId
from replica.link import events
from replica.link.effects import conversation_of
from replica.link.events import EntriesAdmitted, EntryFailed, Event, StateChanged, SyncState
from replica.link.messages import Fault

ID = ConversationId(b"c" * 32)


def test_every_event_of_the_module_is_one_that_a_link_delivers() -> None:
    defined = {
        kind
        for kind in vars(events).values()
        if isinstance(kind, type)
        and kind.__module__ == events.__name__
        and not issubclass(kind, events.Enum)
    }
    assert defined == set(get_args(Event))


def test_events_are_compared_by_contents_and_cannot_be_changed() -> None:
    event = StateChanged(ID, SyncState.OFFLINE)
    assert event == StateChanged(ID, SyncState.OFFLINE)
    assert event != StateChanged(ID, SyncState.DENIED)
    with pytest.raises(FrozenInstanceError):
        event.state = SyncState.DENIED  # type: ignore[misc]


def test_a_failed_conversation_and_a_failed_entry_concern_their_conversation() -> None:
    assert conversation_of(EntryFailed(ID, None, Fault("REASON"))) == ID
    assert conversation_of(EntriesAdmitted(ID, ())) == ID


def test_states_are_named_in_the_words_that_people_read() -> None:
    assert {state.value for state in SyncState} == {
        "offline", "opening", "reconciling", "synchronized", "desynchronized", "denied",
    }  # fmt: skip
