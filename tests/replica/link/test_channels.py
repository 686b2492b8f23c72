"""The channels that are due, and their deadlines, without a pass over the others."""

import pytest

from replica.ids import ConversationId, EntryId
from replica.link import channels as module
from replica.link.channel import Channel
from replica.link.channels import Channels
from replica.link.outgoing import Outgoing

IDS = [ConversationId(bytes([n]) * 32) for n in range(4)]
ENTRY = EntryId(b"e" * 32)


@pytest.fixture
def channels() -> Channels:
    made = Channels()
    for one in IDS:
        made[one] = Channel(one)
    return made


def test_only_channels_with_something_queued_are_due(channels: Channels) -> None:
    assert list(channels.due()) == []
    channels[IDS[2]].queue([ENTRY])
    channels[IDS[1]].queue([ENTRY])
    assert [c.id for c in channels.due()] == [IDS[2], IDS[1]], "the longest due first"
    channels[IDS[2]].outgoing = Outgoing()
    del channels[IDS[1]]
    assert list(channels.due()) == []


def test_drafts_alone_are_not_due_until_the_peer_has_opened(channels: Channels) -> None:
    """A reader that asks with digests alone would have each append look at all its channels."""
    channels[IDS[1]].drafts_due.add(ENTRY)
    assert list(channels.due()) == []
    channels[IDS[1]].is_open = True
    assert [c.id for c in channels.due()] == [IDS[1]]


def test_the_next_deadline_is_that_of_a_channel_as_it_is_now(channels: Channels) -> None:
    assert channels.next_deadline() is None
    channels[IDS[0]].recheck(5.0)
    channels[IDS[1]].recheck(7.0)
    assert channels.next_deadline() == 5.0
    channels[IDS[0]].recheck_at = None
    assert channels.next_deadline() == 7.0
    channels[IDS[1]].check_at = 6.0
    assert channels.next_deadline() == 6.0


def test_channels_are_overdue_once(channels: Channels) -> None:
    channels[IDS[0]].recheck(5.0)
    channels[IDS[1]].recheck(7.0)
    channels[IDS[2]].check_at = 5.0
    assert {c.id for c in channels.overdue(6.0)} == {IDS[0], IDS[2]}
    assert channels.next_deadline() == 5.0, "they were marked, and are still unchanged"
    for one in (IDS[0], IDS[2]):
        channels[one].recheck_at = channels[one].check_at = None
    assert channels.overdue(6.0) == []
    assert channels.next_deadline() == 7.0


def test_old_deadlines_are_removed(channels: Channels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STALE_PER_CHANNEL", 1)
    for number in range(200):
        channels[IDS[0]].recheck(float(number))
        channels.next_deadline()
        channels[IDS[1]].recheck(300.0 + number)
    assert len(channels._deadlines) <= 2 * (len(IDS) + 16)
    assert channels.next_deadline() == 199.0


def test_a_conversation_that_has_no_channel_leaves_no_mark(channels: Channels) -> None:
    """Before its greeting a peer may send faults about any number of them."""
    list(channels.due())
    for number in range(1, 101):
        assert channels.get(ConversationId(number.to_bytes(32, "big"))) is None
    assert not channels._touched
