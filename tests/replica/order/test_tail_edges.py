"""The tail of a branch and the parents of its next entry (spec/03-order §3, ORD-10)."""

from replica.ids import Track
from replica.log.body import Join
from replica.order.tail import frontier, tail
from tests.support.sample import Sample


def test_a_tail_holds_no_entry_of_another_track() -> None:
    sample = Sample()
    hello = sample.say(sample.genesis)
    for track in (Track.MEMBERSHIP, Track.DOCUMENT):
        sample.add(sample.owner.write(sample.id, Join(), parents=[sample.genesis], track=track))
    join = sample.add(sample.owner.write(sample.id, Join(), parents=[hello]))
    assert tail(sample.held.order, None) == [hello, join]
    assert frontier(sample.held.order, None) == (join.id,)
