"""The cuts of a revocation by an honest author (spec/03-order §2, ORD-4)."""

from replica.conversation.cuts import cuts_of
from replica.log.body import Join, Member, Revocation, Role
from tests.support.sample import Sample
from tests.support.stories import cut_at
from tests.support.writers import Writer, said


def test_a_writer_is_cut_at_each_head_of_its_lanes() -> None:
    sample = Sample()
    bob, twin = Writer(2), Writer(2, epoch=5)
    sample.grant(bob, Role.WRITER)
    last = [
        sample.add(author.write(sample.id, said("x"), parents=[sample.genesis]))
        for author in (bob, twin)
        for _ in range(2)
    ][1::2]
    cuts = cuts_of(sample.held.log, bob.public)
    assert cuts == tuple(cut_at(entry) for entry in sorted(last, key=lambda e: e.header.epoch))
    held = sample.held.log
    before = held.covered() | set()
    parents = [held.entries[i] for i in held.membership_heads()]
    body = Member(Revocation(bob.public, cuts))
    sample.add(sample.owner.write(sample.id, body, parents=parents, listed=last))
    assert before < held.covered(), "nothing of it was dropped"


def test_a_reader_is_cut_nowhere() -> None:
    sample = Sample()
    eve = Writer(3)
    sample.grant(eve, Role.READER)
    sample.add(eve.write(sample.id, Join(), parents=[sample.genesis], track=3))
    assert cuts_of(sample.held.log, eve.public) == ()
