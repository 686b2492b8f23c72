"""A Watch as a link: its start, its credit and its end (spec/04-link §9)."""

from itertools import pairwise

import pytest

from replica import limits
from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, EntryId, Lane, Position
from replica.link import STEP_HEADS, Frame, finished
from replica.link.credit import grant_bytes
from replica.link.messages import Ack, Close, Credit, Entries, Fault, Hello, Ids, Open
from replica.log import digest_of
from replica.refusals import (
    ArgumentInvalid,
    ConversationUnknown,
    EntriesMissing,
    LanesDiverged,
    StoreFull,
)
from syncd.links.hint import Hint
from syncd.links.watch import GREETING, Taken, end_of, opening_steps
from tests.support.writers import Writer, said

UNKNOWN = ConversationId(b"c" * 32)


@pytest.fixture
def held() -> Conversation:
    """A conversation with several lanes."""
    owner = Writer(1)
    genesis = owner.genesis()
    found = Conversation(genesis.conversation)
    found.admit(genesis)
    for writer in (owner, Writer(1, epoch=2), Writer(1, epoch=3)):
        found.admit(writer.write(found.id, said("x"), parents=[genesis]))
    return found


def test_a_cursor_at_the_end_asks_with_the_digest_of_the_log(held: Conversation) -> None:
    heads = held.log.heads()
    for cursor in (heads, heads[::-1]):
        asked = finished(opening_steps(held.id, cursor, drafts=True))
        assert asked == Open(held.id, held.log.digest, cursor, True)


def test_a_cursor_that_lags_asks_with_another_digest(held: Conversation) -> None:
    cursor = held.log.heads()[:-1]
    asked = finished(opening_steps(held.id, cursor, drafts=False))
    assert (asked.heads, asked.drafts) == (cursor, False)
    assert asked.digest != held.log.digest
    assert finished(opening_steps(held.id, (), drafts=False)).heads == ()


@pytest.mark.parametrize("track", [-1, 4, 300])
def test_a_cursor_names_existing_tracks(track: int) -> None:
    head = Position(Lane(Writer(1).public, 1, track), 0, EntryId(bytes(32)))
    with pytest.raises(ArgumentInvalid):
        finished(opening_steps(UNKNOWN, (head,), drafts=False))


def test_a_long_cursor_is_sorted_and_hashed_in_steps() -> None:
    lanes = [Lane(Writer(1).public, epoch, 1) for epoch in range(4 * STEP_HEADS)]
    heads = [Position(lane, 0, EntryId(bytes(32))) for lane in reversed(lanes)]
    for number, steps in ((STEP_HEADS - 1, 0), (STEP_HEADS + 1, 2), (4 * STEP_HEADS, 8)):
        cursor = heads[:number]
        assert len(list(opening_steps(UNKNOWN, cursor, drafts=False))) == steps
        asked = finished(opening_steps(UNKNOWN, cursor, drafts=False))
        assert asked.digest == digest_of(sorted(cursor))


def test_a_watcher_grants_a_window_beyond_what_it_took_with_every_sixteenth() -> None:
    taken, sent, granted = Taken(), 0, []
    frame = Frame.of(Ids(UNKNOWN, (EntryId(bytes(32)),) * 1_000), "to_client")
    while sent < limits.CREDIT_BYTES:
        sent += len(frame.data)
        credit = taken.note(frame)
        if credit is not None:
            assert credit == Credit(sent + limits.CREDIT_BYTES)
            granted.append(sent)
    steps = [after - before for before, after in pairwise([0, *granted])]
    assert all(grant_bytes() <= step < grant_bytes() + len(frame.data) for step in steps)
    assert len(granted) > 10


def test_frames_that_need_no_credit_grant_none() -> None:
    taken = Taken()
    frame = Frame.of(Fault.of(StoreFull(), UNKNOWN), "to_client")
    assert {taken.note(frame) for _ in range(2 * grant_bytes() // len(frame.data))} == {None}


def test_a_watch_greets_like_a_client_that_follows_nothing() -> None:
    assert Hello((1,), follow=False) == GREETING


def test_a_fault_or_a_close_ends_a_watch_with_its_reason() -> None:
    fault = Fault.of(StoreFull(), UNKNOWN)
    assert end_of(fault) == end_of(Close(UNKNOWN, fault)) == end_of(Close(None, fault)) == fault
    assert end_of(Close(UNKNOWN)) == Fault.of(ConversationUnknown())


def test_other_messages_do_not_end_a_watch() -> None:
    for item in (Entries(UNKNOWN, ()), Ack(UNKNOWN, ()), Hint(UNKNOWN, None, (), 1, (), ())):
        assert end_of(item) is None


def test_a_watch_goes_on_where_a_hub_misses_entries() -> None:
    assert end_of(Fault.of(EntriesMissing(missing=[bytes(32)]), UNKNOWN)) is None


def test_a_cursor_of_another_history_is_told_to_begin_anew() -> None:
    fault = end_of(Fault.of(LanesDiverged("seq 3"), UNKNOWN, EntryId(bytes(32))))
    assert fault is not None
    assert (fault.reason, fault.retryable) == ("CURSOR_DIVERGED", False)
    assert fault.next_step.startswith("Watch again from an empty cursor")
