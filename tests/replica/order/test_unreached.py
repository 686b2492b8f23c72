"""The entries that no sealed request reaches (spec/03-order §3, ORD-10)."""

from replica.log.body import Join
from replica.order.tail import frontier
from tests.replica.order.test_late import grown
from tests.replica.order.turn import Turn
from tests.support.call_count import calls


def test_a_long_log_keeps_no_sealed_entry_among_the_unreached() -> None:
    held = grown(40, 3)
    unreached = held.order.unreached
    assert len(unreached.messages) == 3
    assert not unreached.requests
    assert sum(i in unreached for i in held.log.entries) == 4, "the late ones and the last answer"


def test_a_seal_removes_all_that_its_request_reaches_listed_or_not() -> None:
    turn = Turn()
    join = turn.admit(turn.ada.write(turn.held.id, Join(), parents=[turn.answer]))
    request = turn.request(join, basis=turn.seal)
    beside = turn.say("beside", turn.answer)
    unreached = turn.held.order.unreached
    assert list(unreached.requests) == [request.id]
    turn.sealed(request, [turn.answer, request], turn.seal)
    assert not any(e.id in unreached for e in (join, request, turn.answer))
    assert list(unreached.messages) == [beside.id]
    assert unreached.authors() == {turn.ada.public}


def test_a_seal_costs_the_same_beside_many_requests_that_wait() -> None:
    def work(count: int) -> int:
        turn = Turn()
        pairs = [turn.say("x", turn.answer) for _ in range(count)]
        asked = [turn.request(message, basis=turn.seal) for message in pairs]
        order = turn.held.order
        frontier(order, order.tips()[-1])
        turn.sealed(asked[0], [turn.answer, pairs[0], asked[0]], turn.seal)
        return calls(lambda: frontier(order, order.tips()[-1]))

    assert work(60) <= work(15) + 20
