"""Positions, tips and forks of lanes, against a list of all entries."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from replica.ids import EntryId, Lane, PublicKey, Track
from replica.log.entry import Entry
from replica.log.lanes import Lanes
from tests.support.writers import Writer

GENESIS = Writer(1).genesis()
LANES = [Lane(PublicKey(bytes([n]) * 32), epoch, 1) for n in (1, 2) for epoch in (7, 8)]


def entry_at(lane: Lane, seq: int, prev: Entry | None, number: int) -> Entry:
    """Return an entry at a position; its other fields don't matter."""
    header = replace(
        GENESIS.header,
        author=lane.author,
        epoch=lane.epoch,
        track=lane.track,
        seq=seq,
        prev=prev.id if prev is not None else None,
    )
    return replace(GENESIS, header=header, id=EntryId(number.to_bytes(32, "big")))


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Return entries of a few lanes, each after its prev; some lanes fork."""
    came: list[Entry] = []
    for number in range(draw(st.integers(0, 14))):
        lane = draw(st.sampled_from(LANES))
        mine: list[Entry | None] = [None, *(e for e in came if e.header.lane == lane)]
        prev = draw(st.sampled_from(mine))
        seq = prev.header.seq + 1 if prev is not None else 0
        came.append(entry_at(lane, seq, prev, number + 1))
    return came


def lanes_of(came: list[Entry]) -> Lanes:
    entries: dict[EntryId, Entry] = {}
    lanes = Lanes(entries)
    for entry in came:
        entries[entry.id] = entry
        lanes.receive(entry)
    return lanes


@given(histories())
def test_each_entry_is_at_its_position(came: list[Entry]) -> None:
    lanes = lanes_of(came)
    assert set(lanes) == {e.header.lane for e in came}
    for lane in LANES:
        mine = [e.header for e in came if e.header.lane == lane]
        assert lanes.length(lane) == max((h.seq + 1 for h in mine), default=0)
        for seq in range(lanes.length(lane) + 1):
            there = [e.id for e in came if (e.header.lane, e.header.seq) == (lane, seq)]
            assert list(lanes.at(lane, seq)) == there


@given(histories())
def test_tips_are_entries_that_none_names_as_prev(came: list[Entry]) -> None:
    lanes = lanes_of(came)
    tips = {e.id for e in came} - {e.header.prev for e in came}
    for lane in LANES:
        mine = sorted(e.id for e in came if e.id in tips and e.header.lane == lane)
        assert list(lanes.tips(lane)) == mine


@given(histories())
def test_a_fork_is_the_first_position_that_two_entries_share(came: list[Entry]) -> None:
    forks = {}
    for entry in came:
        lane, seq = entry.header.lane, entry.header.seq
        there = sorted(e.id for e in came if (e.header.lane, e.header.seq) == (lane, seq))
        if len(there) > 1 and seq <= forks.get(lane, (seq, ()))[0]:
            forks[lane] = (seq, tuple(there))
    found = {lane: (seq, ids) for lane, seq, ids in lanes_of(came).forks()}
    assert found == forks


def test_an_unknown_lane_is_empty() -> None:
    lanes = lanes_of([GENESIS])
    nowhere = Lane(GENESIS.header.author, 99, Track.DOCUMENT)
    assert (lanes.at(nowhere, 0), lanes.length(nowhere), lanes.tips(nowhere)) == ((), 0, ())
    assert list(lanes) == [GENESIS.header.lane]
    assert list(lanes.forks()) == []


def test_the_ids_of_a_fork_ascend_whatever_their_order_of_arrival() -> None:
    twins = [entry_at(LANES[0], 0, None, number) for number in (3, 1, 2)]
    expected = tuple(sorted(twin.id for twin in twins))
    assert list(lanes_of(twins).forks()) == [(LANES[0], 0, expected)]


@given(histories(), st.integers(0, 3))
def test_a_walk_yields_a_lane_from_one_seq_on_in_order(came: list[Entry], start: int) -> None:
    lanes = lanes_of(came)
    for lane in lanes:
        mine = [e for e in came if e.header.lane == lane and e.header.seq >= start]
        walked = list(lanes.walk(lane, start))
        assert sorted(walked) == sorted(e.id for e in mine)
        by_id = {e.id: e for e in mine}
        fork = lanes.fork(lane)
        behind = [by_id[i] for i in walked if fork is not None and by_id[i].header.seq >= fork]
        assert behind == sorted(behind, key=lambda e: e.order_key)


def test_the_lanes_of_an_author_are_found_without_the_others() -> None:
    other = entry_at(LANES[2], 0, None, 9)
    lanes = lanes_of([entry_at(LANES[0], 0, None, 1), other, entry_at(LANES[1], 0, None, 2)])
    assert lanes.of(LANES[0].author) == (LANES[0], LANES[1])
    assert lanes.of(PublicKey(bytes(32))) == ()
