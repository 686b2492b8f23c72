"""Views of a log: bodies, lanes, heads, digest (spec/02-entry, spec/03-order §5)."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.ids import ConversationId, EntryId, Lane, Track
from replica.log.admission import Duplicate
from replica.log.body import Cancel, Join, Member, Revocation
from replica.log.entry import send_order
from replica.log.kinds import Kind
from replica.log.log import Log
from replica.refusals import BodyDigestMismatch
from tests.replica.log.small_log import SmallLog, admitted
from tests.support.stories import Story
from tests.support.writers import said


@pytest.fixture
def small() -> SmallLog:
    return SmallLog()


# --- duplicates and bodies ---------------------------------------------------------


def test_the_same_entry_again_changes_nothing(small: SmallLog) -> None:
    digest = small.log.digest
    assert small.log.admit(small.genesis) == Duplicate()
    assert small.log.digest == digest


def test_a_missing_body_is_filled_once(small: SmallLog) -> None:
    entry = small.say(small.ada)
    small.log.admit(replace(entry, body=None))
    assert small.log.body(entry.id) is None
    assert not small.log.is_malformed(entry.id)
    assert entry.body is not None
    with pytest.raises(BodyDigestMismatch):
        small.log.admit(replace(entry, body=bytes(len(entry.body))))
    assert small.log.admit(entry) == Duplicate(entry)
    assert small.log.body(entry.id) == said("x")
    assert small.log.admit(entry) == Duplicate()


def test_a_body_that_does_not_parse_is_void(small: SmallLog) -> None:
    odd = small.ada.write(
        small.log.conversation, Cancel("x"), parents=[small.genesis], kind=Kind.TOOLS
    )
    unknown = small.ada.write(small.log.conversation, Cancel("x"), parents=[small.genesis], kind=99)
    small.log.admit(odd)
    small.log.admit(unknown)
    assert small.log.body(odd.id) is None
    assert small.log.is_malformed(odd.id)
    assert not small.log.is_malformed(unknown.id)


# --- lanes, heads, digest ------------------------------------------------------------


def test_two_entries_at_one_position_are_both_admitted(small: SmallLog) -> None:
    first = small.say(small.ada)
    small.log.admit(first)
    twin = small.ada.restored()
    left, right = small.say(small.ada, first), small.say(twin, small.genesis)
    for entry in (left, right):
        assert admitted(small.log.admit(entry)) == [entry]
    lane = first.header.lane
    assert set(small.log.at(lane, 1)) == {left.id, right.id}
    assert small.log.lane_tips(lane) == tuple(sorted([left.id, right.id]))
    assert small.log.equivocations() == [(lane, 1, tuple(sorted([left.id, right.id])))]
    assert [h.id for h in small.log.heads() if h.lane == lane] == sorted([left.id, right.id])


def test_a_lane_has_its_length_and_positions(small: SmallLog) -> None:
    entries = [small.say(small.ada) for _ in range(3)]
    for entry in entries:
        small.log.admit(entry)
    lane = entries[0].header.lane
    assert small.log.lane_length(lane) == 3
    assert small.log.at(lane, 2) == (entries[2].id,)
    assert small.log.at(lane, 3) == ()
    assert small.log.equivocations() == []
    nowhere = Lane(small.eve.public, 1, Track.DOCUMENT)
    assert (small.log.lane_length(nowhere), small.log.lane_tips(nowhere)) == (0, ())
    assert small.log.at(nowhere, 0) == ()
    assert set(small.log.lanes()) == {lane, small.genesis.header.lane}


def test_heads_are_sorted_and_pending_excluded(small: SmallLog) -> None:
    pending = small.say(small.bob)
    small.log.admit(pending)
    small.log.admit(small.say(small.ada))
    heads = small.log.heads()
    assert list(heads) == sorted(heads)
    assert pending.id not in {h.id for h in heads}


def test_the_digest_moves_with_every_entry(small: SmallLog) -> None:
    seen = {small.log.digest}
    for _ in range(4):
        small.log.admit(small.say(small.ada))
        seen.add(small.log.digest)
    assert len(seen) == 5


@given(st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_the_digest_does_not_depend_on_the_order_of_arrival(chance: random.Random) -> None:
    entries = list(STORY.entries)
    chance.shuffle(entries)
    log = Log(STORY.held.id)
    for entry in entries + chance.sample(entries, 10):
        log.admit(entry, verified=True)
    assert not log.pending
    assert log.digest == STORY.held.log.digest
    assert log.heads() == STORY.held.log.heads()
    assert {i: set(log.children(i)) for i in log.entries} == {
        i: set(STORY.held.log.children(i)) for i in log.entries
    }


STORY = Story(11)
STORY.grow(60)


def test_send_order_is_topological_but_for_revocations() -> None:
    log = STORY.held.log
    index = {e.id: n for n, e in enumerate(sorted(log.entries.values(), key=send_order))}
    for entry in log.entries.values():
        body = log.body(entry.id)
        is_revocation = isinstance(body, Member) and isinstance(body.change, Revocation)
        named = entry.header.ancestors() if is_revocation else log.named(entry.id)
        assert all(index[i] < index[entry.id] for i in named)
    assert [e.id for e in log.in_send_order(log.entries)] == sorted(index, key=index.__getitem__)


def test_a_join_may_gather_any_track(small: SmallLog) -> None:
    small.log.admit(small.grant)
    join = small.bob.write(small.log.conversation, Join(), parents=[small.grant])
    assert join.header.track == Track.MEMBERSHIP
    assert admitted(small.log.admit(join)) == [join]
    # It gathers heads where there are too many; one is none.
    assert small.log.membership_heads() == (small.grant.id,)


def test_an_empty_log_has_no_members() -> None:
    log = Log(ConversationId(bytes(32)))
    assert log.genesis is None
    assert log.membership.roles == {}
    assert log.heads() == ()
    assert log.covered() == set()
    assert EntryId(bytes(32)) not in log.entries
