"""The tail of a branch, and the parents of its next entry (spec/03-order §3, ORD-10)."""

from replica.conversation.conversation import Conversation
from replica.conversation.place import place_on_branch
from replica.log.body import Cancel, Join, Role
from replica.order.tail import frontier, start, tail
from tests.replica.order.turn import Turn
from tests.support.writers import Writer, said


def test_without_a_tip_the_frontier_is_the_genesis() -> None:
    ada = Writer(1)
    genesis = ada.genesis()
    held = Conversation(genesis.conversation)
    held.admit(genesis)
    assert frontier(held.order, None) == (genesis.id,)
    assert held.order.branch_end(None) is None


def test_a_reader_adds_nothing_to_the_parents_of_the_next_entry() -> None:
    turn, reader = Turn(), Writer(3)
    turn.grant(reader, Role.READER, turn.genesis)
    hello = turn.say("hello again", turn.answer)
    for number in range(70):
        spammer = Writer(3, epoch=number + 2)
        body, kind = (Join(), None) if number % 2 else (said("x"), 77)
        spam = spammer.write(turn.held.id, body, parents=[hello], kind=kind, track=1)
        turn.admit(spam)
        assert turn.held.log.membership.is_visible(spam) == (kind is not None)
    over = turn.say("on top of it", spam)
    tip = turn.held.order.nodes[turn.seal.id]
    assert tail(turn.held.order, tip) == [hello, over]
    assert frontier(turn.held.order, tip) == (over.id,), "it follows hello through the spam"
    open_request = turn.request(over, basis=turn.seal)
    turn.admit(reader.write(turn.held.id, Join(), parents=[open_request], track=1))
    assert place_on_branch(turn.held, open_request.id).parents == (open_request.id,)


def test_what_is_said_while_an_answer_comes_is_in_the_next_context() -> None:
    turn = Turn()
    wait = turn.say("wait", turn.ask)
    tip = turn.held.order.nodes[turn.seal.id]
    assert set(frontier(turn.held.order, tip)) == {wait.id, turn.answer.id}
    request = turn.request(wait, turn.answer, basis=turn.seal)
    seal = turn.sealed(request, [turn.answer, wait, request], turn.seal)
    assert seal.id in turn.held.order.nodes


def test_of_more_than_64_ends_the_last_are_followed() -> None:
    turn = Turn()
    ends = []
    for number in range(70):
        writer = Writer(1, epoch=number + 2)
        ends.append(turn.admit(writer.write(turn.held.id, said("x"), parents=[turn.answer])))
    tip = turn.held.order.nodes[turn.seal.id]
    last = sorted(ends, key=lambda e: e.order_key)[-64:]
    assert frontier(turn.held.order, tip) == tuple(sorted(e.id for e in last))
    turn.admit(Writer(1, epoch=99).write(turn.held.id, Join(), parents=last))
    assert len(frontier(turn.held.order, tip)) == 7


def test_the_tail_is_what_no_seal_lists_behind_the_answer() -> None:
    turn = Turn()
    first = turn.say("one", turn.answer)
    second = turn.say("two", first)
    tip = turn.held.order.nodes[turn.seal.id]
    assert tail(turn.held.order, tip) == [first, second]
    assert start(turn.held.order, tip) == turn.answer.id


def test_a_question_asked_meanwhile_is_not_in_the_tail() -> None:
    turn = Turn()
    wait = turn.say("wait", turn.ask)
    asked = turn.request(turn.say("and this?", turn.ask), basis=turn.seal)
    tip = turn.held.order.nodes[turn.seal.id]
    assert asked not in tail(turn.held.order, tip)
    assert wait in tail(turn.held.order, tip)


def test_a_branch_without_an_answer_starts_at_its_request_until_a_cancel_closes_it() -> None:
    turn = Turn()
    asked = turn.request(turn.answer, basis=turn.seal)
    seal = turn.sealed(asked, [turn.answer, asked], turn.seal)
    tip = turn.held.order.nodes[seal.id]
    assert start(turn.held.order, tip) == asked.id
    cancel = turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[asked]))
    assert start(turn.held.order, tip) == cancel.id
