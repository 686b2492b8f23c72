"""What was written behind a request before its answer came (ORD-10)."""

from random import Random

from replica.log.body import Cancel
from replica.log.entry import Entry
from replica.order.descendants import descendants
from replica.order.meanwhile import Meanwhile
from replica.order.tail import frontier
from tests.replica.order.turn import Turn


def _meanwhile(turn: Turn) -> Meanwhile:
    order = turn.held.order
    return Meanwhile(order, turn.ask.id, descendants(order, turn.answer.id))


def test_a_waiting_request_leaves_out_what_it_follows_and_what_follows_it() -> None:
    turn = Turn()
    first = turn.say("first", turn.ask)
    other = turn.say("other", turn.ask)
    assert _meanwhile(turn).ids == {first.id, other.id}
    waits = turn.request(first)
    after = turn.say("after", waits)
    assert _meanwhile(turn).ids == {other.id}
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[waits]))
    assert {first.id, other.id, after.id} <= _meanwhile(turn).ids


def test_a_request_that_follows_the_answer_does_not_wait() -> None:
    turn = Turn()
    first = turn.say("first", turn.ask)
    waits = turn.request(first, turn.answer)
    assert _meanwhile(turn).ids == {first.id, waits.id}


def test_an_entry_that_may_wait_or_end_what_waits_has_all_found_anew() -> None:
    turn = Turn()
    waits = turn.request(turn.say("first", turn.ask))
    kept = _meanwhile(turn)
    beside, behind = turn.say("beside", turn.ask), turn.say("behind", waits)
    for entry in (beside, behind):
        assert kept.is_followed_by(entry)
        assert kept.receive(entry)
    last = turn.say("last", behind)
    assert kept.receive(last)
    assert kept.ids == _meanwhile(turn).ids == {beside.id}
    assert kept.behind == _meanwhile(turn).behind
    assert not kept.is_followed_by(turn.say("behind the answer", turn.answer))
    assert not kept.receive(turn.request(beside))
    assert not kept.receive(turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[waits])))


def test_the_parents_kept_while_entries_come_are_those_found_from_scratch() -> None:
    kept_often = 0
    for seed in range(12):
        rng, turn = Random(seed), Turn()
        order = turn.held.order
        tip = order.nodes[turn.seal.id]
        written: list[Entry] = [turn.ask, turn.answer]
        for step in range(40):
            parents = rng.sample(written[-6:], min(len(written), rng.choice((1, 1, 2))))
            before = order.open_tail
            match rng.randrange(12):
                case 0:
                    written.append(turn.request(*parents))
                case 1:
                    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[written[-1]]))
                case _:
                    written.append(turn.say(str(step), *parents))
            incremental, kept = frontier(order, tip), order.open_tail
            kept_often += kept is not None and kept is before
            order.open_tail = None
            assert incremental == frontier(order, tip), (seed, step)
            order.open_tail = kept
    assert kept_often > 12 * 20


def test_a_message_behind_the_request_costs_the_same_beside_many_others() -> None:
    def work(count: int) -> int:
        turn = Turn()
        tip = turn.held.order.nodes[turn.seal.id]
        last = turn.ask
        for number in range(count):
            last = turn.say(str(number), last)
        frontier(turn.held.order, tip)
        before = turn.held.work
        for number in range(5):
            last = turn.say(f"more {number}", last)
            assert set(frontier(turn.held.order, tip)) == {turn.answer.id, last.id}
        return turn.held.work - before

    assert work(400) <= work(20)
