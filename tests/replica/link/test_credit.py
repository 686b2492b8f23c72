"""Counted bytes and their limits, each way (spec/04-link §4, LINK-4, LINK-5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica import limits
from replica.conversation.drafts import Draft
from replica.ids import ConversationId, Digest, EntryId
from replica.link.credit import FlowControl, grant_bytes
from replica.link.frame import Frame
from replica.link.messages import Ack, Entries, Fault, Ids, Message, Open, Ping, Pong
from replica.refusals import CreditExceeded
from tests.support.writers import Writer

WINDOW = limits.CREDIT_BYTES
GENESIS = Writer(1).genesis()
ID = ConversationId(GENESIS.id)
DIGEST = Digest(bytes(32))
ENTRIES = Entries(ID, (GENESIS,))
IDS = Ids(ID, (EntryId(GENESIS.id),))
DRAFT = Draft(ID, EntryId(GENESIS.id), 1, 0, (1, 2), 0, b"hi", DIGEST)
UNCOUNTED: list[Message] = [Open(ID, DIGEST), Ping(1), Fault("REASON")]


@pytest.mark.parametrize("message", [ENTRIES, IDS, DRAFT], ids=lambda m: type(m).__name__)
def test_entries_ids_and_drafts_count_both_ways(message: Message) -> None:
    flow = FlowControl()
    frame = Frame.of(message, "to_hub")
    flow.count_sent(frame)
    flow.count_received(message, len(frame.data))
    assert flow.sent_bytes == flow.received_bytes == len(frame.data) > 0


@pytest.mark.parametrize("message", UNCOUNTED, ids=lambda m: type(m).__name__)
def test_nothing_else_counts(message: Message) -> None:
    flow = FlowControl()
    flow.count_sent(Frame.of(message, "to_hub"))
    flow.count_received(message, 10 * WINDOW)
    assert (flow.sent_bytes, flow.received_bytes) == (0, 0)
    assert not isinstance(message, (Ack, Pong))


def test_a_frame_may_begin_until_the_limit_is_reached() -> None:
    flow = FlowControl()
    flow.sent_bytes = WINDOW - 1
    assert flow.may_send()
    flow.count_sent(Frame.of(ENTRIES, "to_hub"))
    assert not flow.may_send()
    flow.extend(flow.sent_bytes)
    assert not flow.may_send()
    flow.extend(flow.sent_bytes + 1)
    assert flow.may_send()


@given(st.lists(st.integers(0, 4 * WINDOW)))
def test_a_limit_never_shrinks(granted: list[int]) -> None:
    flow = FlowControl()
    for limit in granted:
        flow.extend(limit)
    assert flow.sent_limit == max([WINDOW, *granted])


def test_a_limit_counts_up_to_a_bound_ahead_of_what_was_sent() -> None:
    """A hub that grants without end does not make a client queue its whole log."""
    flow = FlowControl(ahead_bytes_max=1_000)
    flow.begin(2**32 - 1)
    assert flow.sent_limit == 1_000
    flow.extend(2**60)
    assert flow.sent_limit == 1_000
    flow.sent_bytes = 900
    flow.extend(1_200)
    assert flow.sent_limit == 1_200
    flow.extend(2**60)
    assert flow.sent_limit == 1_900


def test_a_window_beyond_the_limit_is_accepted_and_more_is_refused() -> None:
    flow = FlowControl()
    flow.count_received(ENTRIES, 2 * WINDOW)
    with pytest.raises(CreditExceeded):
        flow.count_received(ENTRIES, 1)


def test_credit_is_sent_once_a_part_of_the_window_was_read() -> None:
    flow = FlowControl()
    flow.count_received(ENTRIES, grant_bytes() - 1)
    assert flow.grant() is None
    flow.count_received(ENTRIES, 1)
    assert flow.grant() == flow.received_limit == WINDOW + grant_bytes()
    assert flow.grant() is None


def test_lost_bytes_are_charged_until_the_next_heartbeat() -> None:
    flow = FlowControl()
    flow.count_received(ENTRIES, 100)
    flow.catch_up(WINDOW)
    assert (flow.received_bytes, flow.received_limit) == (WINDOW, 2 * WINDOW)
    flow.catch_up(50)  # an old heartbeat
    assert (flow.received_bytes, flow.received_limit) == (WINDOW, 2 * WINDOW)


def test_a_peer_can_not_state_more_sent_bytes_than_allowed() -> None:
    flow = FlowControl()
    flow.catch_up(2 * WINDOW)
    with pytest.raises(CreditExceeded):
        FlowControl().catch_up(2 * WINDOW + 1)


@given(st.lists(st.tuples(st.integers(1, WINDOW), st.booleans()), max_size=30))
def test_two_sides_never_stall_and_never_exceed_the_credit(frames: list[tuple[int, bool]]) -> None:
    sender, receiver = FlowControl(), FlowControl()
    for size, is_lost in frames:
        if not sender.may_send():
            # The heartbeat restores credit lost in either direction.
            receiver.catch_up(sender.sent_bytes)
            sender.extend(receiver.received_limit)
        assert sender.may_send()
        sender.sent_bytes += size
        if not is_lost:
            receiver.count_received(ENTRIES, size)
            limit = receiver.grant()
            if limit is not None:
                sender.extend(limit)
