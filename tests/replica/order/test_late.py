"""Messages beside a request that was sealed without them (spec/03-order §3, ORD-10)."""

import pytest

from replica.conversation.conversation import Conversation
from replica.log.body import Cancel, Request, Role, Sampling
from replica.log.entry import Conflict, Entry
from replica.order.ends import ends
from replica.order.node import SealNode
from replica.order.tail import frontier, start, tail
from tests.replica.order.turn import Turn
from tests.support.call_count import calls
from tests.support.stories import answer
from tests.support.writers import Writer, said

BOB = 3


class Late(Turn):
    """Two turns, and another member who does not have the second one."""

    def __init__(self) -> None:
        """Write the turns; the second is answered."""
        super().__init__()
        self.bob = Writer(BOB)
        self.grant_bob = self.grant(self.bob, Role.WRITER, self.genesis)
        self.more = self.request(self.answer, basis=self.seal)
        self.seal_2 = self.sealed(self.more, [self.answer, self.more], self.seal)
        self.answer_2 = self.reply(self.seal_2)

    def reply(self, seal: Entry) -> Entry:
        """Answer a sealed request."""
        return self.admit(self.hal.write(self.held.id, answer(), parents=[seal], basis=seal))

    def bob_says(self, *parents: Entry) -> Entry:
        """Write a message of the other member."""
        return self.admit(self.bob.write(self.held.id, said("late"), parents=parents))

    def bob_asks(self, *parents: Entry, conflict: Conflict = Conflict.QUEUE) -> Entry:
        """Write a request of the other member."""
        body = Request(self.hal.public, Sampling())
        return self.admit(
            self.bob.write(self.held.id, body, parents=parents, basis=self.seal, conflict=conflict)
        )

    @property
    def tip(self) -> SealNode:
        """The tip with the latest activity."""
        return self.held.order.tips()[-1]

    def check(self, *late: Entry) -> None:
        """Check the late messages, and that the parents kept are those found from scratch."""
        order = self.held.order
        assert tail(order, self.tip) == sorted(late, key=lambda e: e.order_key)
        begin = self.held.log.entries[start(order, self.tip)]
        assert frontier(order, self.tip) == ends(self.held.log, [begin, *late])


def test_a_message_that_came_too_late_for_a_seal_is_in_the_next_context_once() -> None:
    turn = Late()
    late = turn.bob_says(turn.answer)
    turn.check(late)
    assert set(frontier(turn.held.order, turn.tip)) == {turn.answer_2.id, late.id}
    request = turn.request(turn.answer_2, late, basis=turn.seal_2)
    seal = turn.sealed(request, [turn.answer_2, late, request], turn.seal_2)
    context = [e.id for e in turn.held.order.context(seal.id)]
    assert context.count(late.id) == 1
    turn.check()


def test_entries_that_come_one_by_one_move_the_parents_kept() -> None:
    turn = Late()
    turn.check()
    first = turn.bob_says(turn.answer)
    turn.check(first)
    kept = turn.held.order.open_tail
    second = turn.bob_says(first)
    turn.check(first, second)
    assert turn.held.order.open_tail is kept, "a late message needs no pass over the tail"


@pytest.mark.parametrize("conflict", Conflict)
def test_a_request_makes_its_messages_its_own(conflict: Conflict) -> None:
    turn = Late()
    late = turn.bob_says(turn.answer)
    turn.check(late)
    request = turn.bob_asks(late, conflict=conflict)
    turn.check()
    behind = turn.bob_says(request)
    turn.check()
    turn.admit(turn.hal.write(turn.held.id, answer(), parents=[request]))  # it is refused
    turn.check(*((late, behind) if conflict is Conflict.QUEUE else ()))


def test_messages_of_a_closed_request_are_late() -> None:
    turn = Late()
    late = turn.bob_says(turn.answer)
    request = turn.bob_asks(late)
    turn.check()
    turn.admit(turn.bob.write(turn.held.id, Cancel(), parents=[request]))
    turn.check(late)


def test_a_grant_makes_messages_late_that_were_void() -> None:
    turn, cat = Late(), Writer(4)
    word = turn.admit(cat.write(turn.held.id, said("let me in"), parents=[turn.answer]))
    turn.bob_says(word)  # so that it is covered
    first = tail(turn.held.order, turn.tip)
    assert word not in first
    turn.check(*first)
    turn.grant(cat, Role.WRITER, turn.grant_bob)
    turn.check(word, *first)


def test_a_seal_of_another_branch_that_takes_a_late_message_is_noticed() -> None:
    turn = Late()
    late = turn.bob_says(turn.answer)
    other = turn.bob_asks(turn.answer, late, conflict=Conflict.FORK)
    turn.check()
    turn.sealed(other, [turn.answer, late, other], turn.seal)
    last = turn.bob_says(turn.answer)
    assert turn.tip.seal.request == other.id
    turn.check(last)
    order, second = turn.held.order, turn.held.order.nodes[turn.seal_2.id]
    assert tail(order, second) == [last]
    assert set(frontier(order, second)) == {turn.answer_2.id, last.id}


def grown(count: int, late: int) -> Conversation:
    """Return a log of queued turns, and of messages beside the first of them."""
    turn = Late()
    seal, reply = turn.seal_2, turn.answer_2
    for _ in range(count):
        request = turn.request(reply, basis=seal)
        seal = turn.sealed(request, [reply, request], seal)
        reply = turn.reply(seal)
    for _ in range(late):
        turn.bob_says(turn.bob.last(turn.held.id) or turn.answer)
    return turn.held


def test_the_parents_of_the_next_entry_cost_the_same_on_a_long_chain() -> None:
    def work(count: int) -> int:
        held = grown(count, 2)
        held.order.open_tail = None
        return calls(lambda: frontier(held.order, held.order.tips()[-1]))

    assert work(120) <= work(30) + 20, "the chain is looked up in O(log n)"


def test_a_late_message_costs_the_same_beside_many_others() -> None:
    def work(late: int) -> int:
        held, bob = grown(1, late), Writer(BOB)
        frontier(held.order, held.order.tips()[-1])
        for entry in held.log.entries.values():
            if entry.header.author == bob.public:
                bob._last[held.id, entry.header.lane] = last = entry
        entry = bob.write(held.id, said("more"), parents=[last])

        def come() -> None:
            held.admit(entry, verified=True)
            frontier(held.order, held.order.tips()[-1])

        return calls(come)

    assert work(200) <= work(50) + 20


@pytest.mark.parametrize("conflict", [Conflict.FORK, Conflict.QUEUE])
def test_a_message_behind_an_open_request_that_a_sealed_one_follows_is_not_late(
    conflict: Conflict,
) -> None:
    turn = Late()
    held, ida = turn.held, Writer(4)
    turn.grant(ida, Role.HOST, turn.grant_bob)

    def ask(*parents: Entry, conflict: Conflict) -> Entry:
        body = Request(ida.public, Sampling())
        return turn.admit(turn.bob.write(held.id, body, parents=parents, conflict=conflict))

    first = ask(turn.hello, conflict=conflict)
    then = ask(first, conflict=Conflict.FORK)
    other = turn.sealed(then, [turn.hello, first, then], by=ida)
    assert other.id in held.order.nodes
    tip = held.order.nodes[turn.seal_2.id]
    beside = turn.bob_says(turn.hello)
    joined = turn.bob_says(beside, first)

    def check(*late: Entry) -> None:
        begin = held.log.entries[start(held.order, tip)]
        assert set(tail(held.order, tip)) == set(late)
        assert frontier(held.order, tip) == ends(held.log, [begin, *late])

    check(beside)
    turn.admit(turn.bob.write(held.id, Cancel(), parents=[first]))
    check(*([beside] if conflict is Conflict.FORK else [beside, joined]))
