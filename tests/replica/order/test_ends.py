"""The entries of a set that no other of them follows (spec/03-order §3, ORD-10)."""

from replica.limits import PARENTS_MAX
from replica.log.body import Join
from replica.order.ends import NOWHERE, ends, first_reached
from tests.replica.order.turn import Turn
from tests.support.sample import Sample
from tests.support.writers import Writer, said


def test_an_end_is_followed_by_none_of_the_others_even_through_what_is_not_said() -> None:
    turn = Turn()
    first = turn.say("one", turn.answer)
    join = turn.admit(turn.ada.write(turn.held.id, Join(), parents=[first]))
    last = turn.say("two", join)
    assert ends(turn.held.log, [first, last]) == (last.id,)
    assert ends(turn.held.log, [first, turn.hello]) == (first.id,)
    assert ends(turn.held.log, []) == ()


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
    kept = ends(sample.held.log, [early, *late], needed=[early.id])
    first = min(late, key=lambda entry: entry.order_key)
    assert set(kept) == {early.id, *expected} - {first.id}


def test_the_walk_between_ends_stays_among_unreached_entries() -> None:
    turn = Turn()
    late, asked = turn.say("late", turn.hello), turn.request(turn.answer, basis=turn.seal)
    unreached = turn.held.order.unreached
    assert first_reached([late, asked], unreached) == NOWHERE
    assert first_reached([late, turn.ask], unreached) == turn.ask.header.lamport
    assert set(ends(turn.held.log, [late, asked, turn.ask], unreached)) == {late.id, asked.id}
