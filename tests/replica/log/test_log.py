"""What is read off a log: bodies, lanes, heads, digest (spec/02-entry, 03-order §5)."""

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
from tests.replica.log.pad import Pad, admitted
from tests.support.stories import Story
from tests.support.writers import said


@pytest.fixture
def pad() -> Pad:
    return Pad()


# --- duplicates and bodies ---------------------------------------------------------


def test_the_same_entry_again_changes_nothing(pad: Pad) -> None:
    digest = pad.log.digest
    assert pad.log.admit(pad.genesis) == Duplicate()
    assert pad.log.digest == digest


def test_a_missing_body_is_filled_once(pad: Pad) -> None:
    entry = pad.say(pad.ada)
    pad.log.admit(replace(entry, body=None))
    assert pad.log.body(entry.id) is None
    assert not pad.log.is_malformed(entry.id)
    assert entry.body is not None
    with pytest.raises(BodyDigestMismatch):
        pad.log.admit(replace(entry, body=bytes(len(entry.body))))
    assert pad.log.admit(entry) == Duplicate(entry)
    assert pad.log.body(entry.id) == said("x")
    assert pad.log.admit(entry) == Duplicate()


def test_a_body_that_does_not_parse_is_void(pad: Pad) -> None:
    odd = pad.ada.write(pad.log.conversation, Cancel("x"), parents=[pad.genesis], kind=Kind.TOOLS)
    unknown = pad.ada.write(pad.log.conversation, Cancel("x"), parents=[pad.genesis], kind=99)
    pad.log.admit(odd)
    pad.log.admit(unknown)
    assert pad.log.body(odd.id) is None
    assert pad.log.is_malformed(odd.id)
    assert not pad.log.is_malformed(unknown.id)


# --- lanes, heads, digest ------------------------------------------------------------


def test_two_entries_at_one_position_are_both_admitted(pad: Pad) -> None:
    first = pad.say(pad.ada)
    pad.log.admit(first)
    twin = pad.ada.restored()
    left, right = pad.say(pad.ada, first), pad.say(twin, pad.genesis)
    for entry in (left, right):
        assert admitted(pad.log.admit(entry)) == [entry]
    lane = first.header.lane
    assert set(pad.log.at(lane, 1)) == {left.id, right.id}
    assert pad.log.lane_tips(lane) == tuple(sorted([left.id, right.id]))
    assert pad.log.equivocations() == [(lane, 1, tuple(sorted([left.id, right.id])))]
    assert [h.id for h in pad.log.heads() if h.lane == lane] == sorted([left.id, right.id])


def test_a_lane_knows_its_length_and_places(pad: Pad) -> None:
    entries = [pad.say(pad.ada) for _ in range(3)]
    for entry in entries:
        pad.log.admit(entry)
    lane = entries[0].header.lane
    assert pad.log.lane_length(lane) == 3
    assert pad.log.at(lane, 2) == (entries[2].id,)
    assert pad.log.at(lane, 3) == ()
    assert pad.log.equivocations() == []
    nowhere = Lane(pad.eve.public, 1, Track.DOCUMENT)
    assert (pad.log.lane_length(nowhere), pad.log.lane_tips(nowhere)) == (0, ())
    assert pad.log.at(nowhere, 0) == ()
    assert set(pad.log.lanes()) == {lane, pad.genesis.header.lane}


def test_heads_are_sorted_and_pending_excluded(pad: Pad) -> None:
    waiting = pad.say(pad.bob)
    pad.log.admit(waiting)
    pad.log.admit(pad.say(pad.ada))
    heads = pad.log.heads()
    assert list(heads) == sorted(heads)
    assert waiting.id not in {h.id for h in heads}


def test_the_digest_moves_with_every_entry(pad: Pad) -> None:
    seen = {pad.log.digest}
    for _ in range(4):
        pad.log.admit(pad.say(pad.ada))
        seen.add(pad.log.digest)
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


def test_send_order_is_topological_but_for_what_revocations_name() -> None:
    log = STORY.held.log
    place = {e.id: n for n, e in enumerate(sorted(log.entries.values(), key=send_order))}
    for entry in log.entries.values():
        body = log.body(entry.id)
        is_revocation = isinstance(body, Member) and isinstance(body.change, Revocation)
        named = entry.header.ancestors() if is_revocation else log.named(entry.id)
        assert all(place[i] < place[entry.id] for i in named)
    assert [e.id for e in log.in_send_order(log.entries)] == sorted(place, key=place.__getitem__)


def test_a_join_may_gather_any_track(pad: Pad) -> None:
    pad.log.admit(pad.grant)
    join = pad.bob.write(pad.log.conversation, Join(), parents=[pad.grant])
    assert join.header.track == Track.MEMBERSHIP
    assert admitted(pad.log.admit(join)) == [join]
    # It gathers heads where there are too many; one is none.
    assert pad.log.membership_heads() == (pad.grant.id,)


def test_an_empty_log_knows_nobody() -> None:
    log = Log(ConversationId(bytes(32)))
    assert log.genesis is None
    assert log.membership.roles == {}
    assert log.heads() == ()
    assert log.covered() == set()
    assert EntryId(bytes(32)) not in log.entries
