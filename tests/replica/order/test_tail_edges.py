"""The tail of a branch and the parents of its next entry (spec/03-order §3, ORD-10)."""

from replica.ids import Track
from replica.limits import PARENTS_MAX
from replica.log.body import Join
from replica.order.tail import ends, frontier, tail
from tests.support.sample import Sample
from tests.support.writers import Writer, said


def test_a_tail_holds_no_entry_of_another_track() -> None:
    sample = Sample()
    hello = sample.say(sample.genesis)
    for track in (Track.MEMBERSHIP, Track.DOCUMENT):
        sample.add(sample.owner.write(sample.id, Join(), parents=[sample.genesis], track=track))
    join = sample.add(sample.owner.write(sample.id, Join(), parents=[hello]))
    assert tail(sample.held.order, None) == [hello, join]
    assert frontier(sample.held.order, None) == (join.id,)


def test_of_surplus_ends_the_last_are_kept_whatever_their_order() -> None:
    sample = Sample()
    hello = sample.say(sample.genesis)
    late = [
        sample.add(Writer(1, epoch=n).write(sample.id, said("x"), parents=[hello]))
        for n in range(2, PARENTS_MAX + 2)
    ]
    early = sample.add(Writer(1, epoch=99).write(sample.id, said("x"), parents=[sample.genesis]))
    expected = tuple(sorted(entry.id for entry in late))
    assert ends(sample.held.log, [early, *late]) == expected
    assert ends(sample.held.log, [*late, early]) == expected
    assert ends(sample.held.log, []) == ()
