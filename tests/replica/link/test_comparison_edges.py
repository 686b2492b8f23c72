"""The entries that two holders of one conversation lack of each other (spec/05-reconcile)."""

import pytest

from replica.ids import EntryId, Position
from replica.link.comparison import (
    Backlog,
    HeldLanes,
    compare_heads,
    compare_steps,
    everything,
    front_steps,
    lacking,
)
from replica.link.steps import STEP_HEADS, finished
from replica.log.body import Role
from replica.log.entry import Entry
from tests.support.sample import Sample
from tests.support.writers import Writer, said

UNKNOWN = EntryId(bytes(32))


@pytest.fixture
def sample() -> Sample:
    """A conversation whose owner wrote a lane of three messages."""
    begun = Sample()
    begun.add(*begun.chain(3))
    return begun


def _lane(sample: Sample) -> list[Entry]:
    return [e for e in sample.held.log.entries.values() if e.id != sample.genesis.id]


def _at(entry: Entry, seq: int) -> Position:
    """Return a head of the same lane that is unknown here."""
    return entry.position._replace(seq=seq, id=UNKNOWN)


def test_a_head_that_is_held_covers_its_lane_before_it(sample: Sample) -> None:
    lane = _lane(sample)
    verdict = compare_heads(sample.held.log, [lane[1].position])
    assert verdict.held == {lane[0].id, lane[1].id}
    assert not verdict.wanted
    assert not verdict.diverged


def test_a_head_ahead_of_a_lane_is_wanted_and_the_lane_is_assumed_held(sample: Sample) -> None:
    lane = _lane(sample)
    verdict = compare_heads(sample.held.log, [_at(lane[0], 3)])
    assert verdict.held == {entry.id for entry in lane}
    assert verdict.wanted == {UNKNOWN}
    assert not verdict.diverged


def test_another_entry_at_a_held_position_diverges_and_tells_nothing_of_the_lane(
    sample: Sample,
) -> None:
    lane = _lane(sample)
    head = _at(lane[0], 1)
    verdict = compare_heads(sample.held.log, [head])
    assert verdict.diverged == (head,)
    assert verdict.wanted == {UNKNOWN}
    assert not verdict.held


def test_a_head_of_an_unknown_lane_is_wanted(sample: Sample) -> None:
    stranger = Writer(9).write(sample.id, said("x"), parents=[sample.genesis])
    verdict = compare_heads(sample.held.log, [stranger.position])
    assert (verdict.held, verdict.wanted, verdict.diverged) == (set(), {stranger.id}, ())


def test_everything_comes_with_the_membership_first(sample: Sample) -> None:
    lane, bob = _lane(sample), Writer(2)
    sample.grant(bob, Role.WRITER)
    [grant] = sample.held.log.membership_heads()
    found = [entry.id for entry in everything(sample.held.log)]
    assert found == [sample.genesis.id, grant, *(entry.id for entry in lane)]


def test_many_heads_are_compared_in_steps_and_what_comes_between_them_is_sent(
    sample: Sample,
) -> None:
    lane = _lane(sample)
    heads = [lane[0].position] * (2 * STEP_HEADS)
    steps = compare_steps(sample.held.log, heads)
    next(steps)
    (new,) = sample.chain(1)
    sample.add(new)
    verdict = finished(steps)
    assert verdict.held == compare_heads(sample.held.log, heads).held == {lane[0].id}
    assert new in lacking(sample.held.log, verdict.held)
    assert len(list(compare_steps(sample.held.log, heads))) == 2


def test_an_entry_that_forks_a_lane_between_two_steps_is_sent(sample: Sample) -> None:
    twin, lane = sample.owner.restored(), _lane(sample)
    top = sample.add(*sample.chain(2))
    steps = compare_steps(sample.held.log, [top.position] * (STEP_HEADS + 1))
    next(steps)
    forked = sample.add(twin.write(sample.id, said("fork"), parents=lane[-1:]))
    verdict = finished(steps)
    assert forked in lacking(sample.held.log, verdict.held)
    assert {entry.id for entry in lane} <= verdict.held


def test_what_a_peer_lacks_is_found_in_steps_and_what_comes_between_them_is_sent_once(
    sample: Sample,
) -> None:
    log, lane, twin = sample.held.log, _lane(sample), sample.owner.restored()
    for epoch in range(2, STEP_HEADS + 1):
        writer = Writer(1, epoch=epoch)
        sample.add(writer.write(sample.id, said("x"), parents=[sample.genesis]))
    held = HeldLanes(log)
    finished(held.chain_steps(lane[-1].id))
    steps = front_steps(log, held)
    next(steps)
    new = sample.add(Writer(1, epoch=1_000).write(sample.id, said("new"), parents=lane[-1:]))
    longer = sample.add(*sample.chain(2))
    forked = sample.add(twin.write(sample.id, said("fork"), parents=lane[:1]))
    found = list(lacking(log, held, finished(steps)))
    assert found == list(lacking(log, held))
    assert {new, longer, forked} <= set(found)
    assert sorted({e.id for e in found}) == sorted(e.id for e in found)
    assert len(list(front_steps(log, held))) == 1


def test_the_chain_of_a_head_behind_a_fork_is_found_in_steps(sample: Sample) -> None:
    twin = Writer(1, epoch=9)
    forks = [
        twin.restored().write(sample.id, said(text), parents=[sample.genesis]) for text in "ab"
    ]
    twin.write(sample.id, said("a"), parents=[sample.genesis])
    lane = [twin.write(sample.id, said("x"), parents=[sample.genesis]) for _ in range(STEP_HEADS)]
    sample.add(*forks, *lane)
    steps = compare_steps(sample.held.log, [lane[-1].position])
    next(steps)
    verdict = finished(steps)
    assert verdict.held == {forks[0].id, *(entry.id for entry in lane)}
    backlog = lacking(sample.held.log, verdict.held)
    assert isinstance(backlog, Backlog)
    assert backlog.ids_kept == len(lane) + 1
