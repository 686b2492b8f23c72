"""A revocation that keeps what its key has written so far (spec/03-order §2)."""

import pytest

from replica import limits
from replica.log.body import Join, Member, Revocation, Role
from replica.log.revoking import cuts_at_heads
from replica.refusals import ArgumentInvalid
from tests.support.sample import Sample
from tests.support.stories import cut_at
from tests.support.writers import Writer, said


@pytest.fixture
def sample() -> Sample:
    held = Sample()
    held.grant(bob(), Role.WRITER)
    return held


def bob(epoch: int = 1) -> Writer:
    return Writer(2, epoch=epoch)


def revoke(sample: Sample) -> None:
    key = bob().public
    heads = sample.at(*sample.held.log.membership_heads())
    cuts = cuts_at_heads(sample.held.log, key)
    kept = sample.at(*(cut.id for cut in cuts))
    body = Member(Revocation(key, cuts))
    sample.add(sample.owner.write(sample.id, body, parents=heads, listed=kept))


def test_all_lanes_are_kept_and_what_comes_later_is_void(sample: Sample) -> None:
    first, second = bob(1), bob(2)
    before = [
        sample.add(first.write(sample.id, said("one"), parents=[sample.genesis])),
        sample.add(first.write(sample.id, said("two"), parents=[sample.genesis])),
        sample.add(second.write(sample.id, said("three"), parents=[sample.genesis])),
    ]
    revoke(sample)
    after = sample.add(second.write(sample.id, said("four"), parents=[sample.genesis]))
    membership = sample.held.log.membership
    assert not membership.is_member(first.public)
    assert [membership.is_visible(entry) for entry in before] == [True] * 3
    assert not membership.is_visible(after)


def test_the_cuts_are_sorted_heads_and_drop_nothing_that_was_covered(sample: Sample) -> None:
    last = [
        sample.add(author.write(sample.id, said("x"), parents=[sample.genesis]))
        for author in (bob(5), bob(1))
        for _ in range(2)
    ][1::2]
    before = sample.held.log.covered() | set()
    cuts = cuts_at_heads(sample.held.log, bob().public)
    assert cuts == tuple(cut_at(entry) for entry in reversed(last))
    revoke(sample)
    assert before < sample.held.log.covered()


def test_a_reader_is_cut_nowhere(sample: Sample) -> None:
    eve = Writer(3)
    sample.grant(eve, Role.READER)
    sample.add(eve.write(sample.id, Join(), parents=[sample.genesis], track=3))
    assert cuts_at_heads(sample.held.log, eve.public) == ()


def test_a_forked_lane_keeps_no_more_than_it_has(sample: Sample) -> None:
    one, other = bob(), bob()
    fork = [
        sample.add(one.write(sample.id, said("one"), parents=[sample.genesis])),
        sample.add(other.write(sample.id, said("other"), parents=[sample.genesis])),
    ]
    assert len(cuts_at_heads(sample.held.log, bob().public)) == 2
    revoke(sample)
    membership = sample.held.log.membership
    assert all(membership.is_visible(entry) for entry in fork)


def test_a_key_that_wrote_nothing_has_no_cuts(sample: Sample) -> None:
    assert cuts_at_heads(sample.held.log, bob().public) == ()


def test_more_lanes_than_a_revocation_has_room_for_are_refused(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CUTS_MAX", 1)
    for epoch in (1, 2):
        sample.add(bob(epoch).write(sample.id, said("x"), parents=[sample.genesis]))
    with pytest.raises(ArgumentInvalid):
        cuts_at_heads(sample.held.log, bob().public)
