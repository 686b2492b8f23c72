"""Messages that a CANCEL withdraws are in no later context (spec/03-order §3, ORD-6, ORD-10)."""

import pytest

from replica.conversation.next_seal import seal_by_coverage
from replica.conversation.place import newest_place
from replica.ids import EntryId
from replica.log.body import Cancel, Member, Revocation, Role
from replica.log.entry import Entry
from replica.order import first_closing, is_withdrawal, is_withdrawn, tail, with_withdrawals
from replica.order.cancels import withdrawn
from replica.order.verdict import VoidReason
from tests.replica.order.turn import Turn
from tests.support.stories import answer
from tests.support.writers import Writer, said


def end(turn: Turn, one: Entry, by: Writer | None = None) -> Entry:
    """Write a CANCEL of an entry."""
    return turn.admit((by or turn.ada).write(turn.held.id, Cancel(), parents=[one]))


def listed(turn: Turn, *parents: Entry) -> tuple[EntryId, ...]:
    """Return what the seal of a request with these parents lists before it."""
    request = turn.request(*sorted(parents, key=lambda e: e.id), basis=turn.seal)
    found = seal_by_coverage(turn.held, request.id)
    assert found is not None
    assert found.entries[-1] == request.id
    return found.entries[:-1]


def test_a_request_that_follows_the_withdrawal_does_not_list_the_message() -> None:
    turn = Turn()
    words = turn.say("oops", turn.answer)
    gone = end(turn, words)
    beside = turn.say("right", turn.answer)
    assert is_withdrawal(turn.held.log, gone)
    assert listed(turn, gone, beside) == (turn.answer.id, beside.id)
    assert listed(turn, words, beside) == (turn.answer.id, words.id, beside.id)


def test_what_others_wrote_behind_the_message_stays_in_the_context() -> None:
    turn = Turn()
    words = turn.say("oops", turn.answer)
    behind = turn.say("what?", words)
    gone = end(turn, words)
    assert listed(turn, gone, behind) == (turn.answer.id, behind.id)


@pytest.mark.parametrize("role", [Role.OWNER, Role.WRITER])
def test_an_owner_withdraws_messages_of_others_and_a_writer_does_not(role: Role) -> None:
    turn, bob = Turn(), Writer(3)
    turn.grant(bob, role, turn.genesis)
    words = turn.say("oops", turn.answer)
    gone = end(turn, words, by=bob)
    kept = () if role == Role.OWNER else (words.id,)
    assert listed(turn, gone) == (turn.answer.id, *kept)
    assert is_withdrawn(turn.held.order, words.id) == (role == Role.OWNER)
    log = turn.held.log
    assert withdrawn(log, {gone.id, words.id}, log.membership) == {words.id} - {*kept}
    assert withdrawn(log, {gone.id}, log.membership) == set()


def test_a_cancel_with_two_parents_or_of_a_request_withdraws_nothing() -> None:
    turn = Turn()
    words, more = turn.say("oops", turn.answer), turn.say("and", turn.answer)
    both = sorted([words, more], key=lambda e: e.id)
    two = turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=both))
    asked = turn.request(words, basis=turn.seal)
    ends = end(turn, asked)
    assert listed(turn, two, ends) == (turn.answer.id, words.id, more.id, asked.id)
    assert not is_withdrawal(turn.held.log, two)
    assert not is_withdrawal(turn.held.log, ends)
    assert not is_withdrawn(turn.held.order, asked.id)


def test_a_seal_that_lists_a_withdrawn_message_is_void() -> None:
    turn = Turn()
    words = turn.say("oops", turn.answer)
    gone = end(turn, words)
    request = turn.request(gone, basis=turn.seal)
    seal = turn.sealed(request, [turn.answer, words, request], turn.seal)
    assert turn.held.order.void[seal.id] is VoidReason.COVERAGE_WRONG
    right = turn.sealed(request, [turn.answer, request], turn.seal)
    assert turn.held.order.seal_of[request.id] == right.id


def test_a_message_that_a_seal_lists_stays_in_the_context() -> None:
    turn = Turn()
    gone = end(turn, turn.hello)
    assert not is_withdrawn(turn.held.order, turn.hello.id)
    assert [e.id for e in turn.held.order.context(turn.seal.id)] == [turn.hello.id, turn.ask.id]
    assert listed(turn, turn.answer, gone) == (turn.answer.id,)


def test_the_next_entry_follows_a_withdrawal_before_and_after_another_seal() -> None:
    """The message is late once a request beside it is sealed."""
    turn = Turn()
    words = turn.say("oops", turn.answer)
    request = turn.request(turn.answer, basis=turn.seal)
    gone = end(turn, words)
    assert gone.id in newest_place(turn.held).parents
    seal = turn.sealed(request, [turn.answer, request], turn.seal)
    came = turn.admit(turn.hal.write(turn.held.id, answer(), parents=[seal], basis=seal))
    assert newest_place(turn.held).parents == tuple(sorted((came.id, gone.id)))
    tip = turn.held.order.nodes[seal.id]
    assert [e.id for e in tail(turn.held.order, tip)] == [words.id]


def test_a_withdrawal_may_arrive_after_the_frontier_was_asked_for() -> None:
    turn = Turn()
    words = turn.say("oops", turn.answer)
    assert newest_place(turn.held).parents == (words.id,)
    gone = end(turn, words)
    assert newest_place(turn.held).parents == (gone.id,)
    late = turn.admit(turn.ada.write(turn.held.id, said("late"), parents=[turn.hello]))
    assert set(newest_place(turn.held).parents) == {gone.id, late.id}
    too = end(turn, late)
    assert set(newest_place(turn.held).parents) == {gone.id, too.id}
    reply = turn.say("what?", late)
    assert set(newest_place(turn.held).parents) == {gone.id, too.id, reply.id}


def test_another_withdrawal_is_followed_only_where_none_is() -> None:
    turn, bea = Turn(), Writer(3)
    turn.grant(bea, Role.OWNER, turn.genesis)
    words = turn.say("oops", turn.answer)
    reply = turn.say("what?", words)
    ends = {end(turn, words).id, end(turn, words, by=bea).id}
    first = first_closing(turn.held.order, words.id)
    assert first in ends
    assert set(newest_place(turn.held).parents) == {reply.id, first}
    (other,) = ends - {first}
    behind = turn.say("so", turn.of(other))
    assert set(newest_place(turn.held).parents) == {reply.id, behind.id}


def test_parents_that_somebody_chose_lack_the_cancels_of_what_they_reach() -> None:
    turn = Turn()
    words = turn.say("oops", turn.answer)
    reply = turn.say("what?", words)
    node = turn.held.order.nodes[turn.seal.id]
    assert with_withdrawals(turn.held.order, (reply.id,), node) == (reply.id,)
    gone = end(turn, words)
    assert with_withdrawals(turn.held.order, (reply.id,), node) == (reply.id, gone.id)
    assert with_withdrawals(turn.held.order, (reply.id, gone.id), node) == (reply.id, gone.id)
    assert with_withdrawals(turn.held.order, (turn.hello.id,), node) == (turn.hello.id,)


def test_a_message_that_a_seal_left_out_stays_withdrawn_without_its_owner() -> None:
    turn, bea, bob = Turn(), Writer(3), Writer(4)
    granted = turn.grant(bea, Role.OWNER, turn.genesis)
    granted = turn.grant(bob, Role.WRITER, granted)
    words = turn.admit(bob.write(turn.held.id, said("oops"), parents=[turn.answer]))
    gone = end(turn, words, by=bea)
    request = turn.request(gone, basis=turn.seal)
    turn.sealed(request, [turn.answer, request], turn.seal)
    body = Member(Revocation(bea.public))
    turn.admit(turn.ada.write(turn.held.id, body, parents=[granted]))
    assert first_closing(turn.held.order, words.id) is None
    assert is_withdrawn(turn.held.order, words.id)


def test_many_cancels_of_one_message_are_read_in_order() -> None:
    turn = Turn()
    words = turn.say("oops", turn.answer)
    ends = [end(turn, words) for _ in range(50)]
    ordered = tuple(e.id for e in sorted(ends, key=lambda e: e.order_key))
    assert turn.held.order.closing_cancels(words.id) == ordered
    assert first_closing(turn.held.order, words.id) == ordered[0]
