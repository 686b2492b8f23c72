"""Refusals of a whole conversation: recognition among faults, and the channel afterwards."""

import pytest

from replica import limits
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId
from replica.link.channel import Channel
from replica.link.effects import EffectsBuilder
from replica.link.events import EntryFailed, StateChanged, SyncState
from replica.link.messages import Fault
from replica.link.refusal import deny, refuses_conversation
from replica.refusals import (
    ConversationDeleted,
    ConversationUnknown,
    EntriesMissing,
    FieldInvalid,
    LanesDiverged,
    PendingFull,
    QuotaExceeded,
)

ID = ConversationId(b"c" * 32)
ENTRY = EntryId(b"e" * 32)


@pytest.mark.parametrize(
    ("error", "entry", "is_held", "wanted"),
    [
        (ConversationUnknown(), None, True, True),
        (ConversationUnknown(), ENTRY, True, True),
        (LanesDiverged(), None, True, False),
        (EntriesMissing(), None, True, False),
        (EntriesMissing(), None, False, False),
        (ConversationDeleted(), None, True, True),
        (QuotaExceeded(), None, False, True),
        (QuotaExceeded(), ENTRY, True, False),
        (FieldInvalid(), ENTRY, True, False),
        (PendingFull(), None, True, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, AntiphonError) else None,
)
def test_a_refusal_concerns_no_entry_and_is_for_good(
    error: AntiphonError, entry: EntryId | None, is_held: bool, wanted: bool
) -> None:
    assert refuses_conversation(Fault.of(error, ID, entry), is_held=is_held) is wanted


def test_missing_entries_refuse_a_conversation_that_is_not_held() -> None:
    final = Fault(EntriesMissing.reason, conversation=ID)
    assert not refuses_conversation(final, is_held=True)
    assert refuses_conversation(final, is_held=False)


def test_a_refused_conversation_is_denied_reported_once_and_asked_about_later() -> None:
    channel, out = (
        Channel(ID, state=SyncState.RECONCILING, is_open=True, seedings=3),
        EffectsBuilder(),
    )
    fault = Fault.of(ConversationUnknown(), ID)
    deny(channel, fault, out, 5.0)
    deny(channel, fault, out, 6.0)
    assert out.deliver == [StateChanged(ID, SyncState.DENIED), EntryFailed(ID, None, fault)]
    assert channel.recheck_at == 6.0 + limits.DENIED_RECHECK_S
    assert (channel.is_open, channel.seedings) == (False, 1)


def test_a_conversation_never_sent_is_still_sent_whole_when_it_is_known_again() -> None:
    channel = Channel(ID)
    deny(channel, Fault.of(ConversationUnknown(), ID), EffectsBuilder(), 0.0)
    assert channel.seedings == 0
