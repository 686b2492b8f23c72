"""The rule of coverage, single cases (spec/03-order §3, ORD-6)."""

from replica.log.body import Grant, Join, Member, Revocation, Role
from replica.log.entry import Conflict, Entry
from replica.order.coverage import coverage, is_answer, uncovered_closure
from tests.replica.order.turn import Turn
from tests.support.stories import answer
from tests.support.writers import Writer, said


def listed(turn: Turn, request: Entry, *, after: Entry | None, with_answer: bool = False) -> list:
    """Return the entries a seal of `request` on the seal `after` lists."""
    order, log = turn.held.order, turn.held.log
    parent = order.nodes[after.id] if after else None
    answered = turn.answer.id if with_answer else None
    covered = coverage(log, order.nodes, request.id, parent, answered, log.membership)
    return [log.entries[i] for i in covered.entries]


def test_the_first_seal_lists_all_that_its_request_follows() -> None:
    turn = Turn()
    assert listed(turn, turn.ask, after=None) == [turn.hello, turn.ask]


def test_a_later_seal_lists_only_what_its_chain_does_not() -> None:
    turn = Turn()
    more = turn.say("and?", turn.answer)
    request = turn.request(more, basis=turn.seal)
    assert listed(turn, request, after=turn.seal) == [turn.answer, more, request]


def test_the_closure_of_a_request_ends_where_the_chain_covers() -> None:
    turn = Turn()
    request = turn.request(turn.say("and?", turn.answer), basis=turn.seal)
    closure = uncovered_closure(turn.held.log, [request.id], turn.held.order.nodes[turn.seal.id])
    assert closure == {request.id, *request.header.parents, turn.answer.id, turn.seal.id}
    everything = uncovered_closure(turn.held.log, [request.id], None)
    assert everything == closure | {turn.ask.id, turn.hello.id, turn.genesis.id}


def test_a_queued_request_lists_the_answer_first_although_it_does_not_follow_it() -> None:
    turn = Turn()
    early = turn.request(turn.say("and?", turn.ask), basis=turn.seal)
    found = listed(turn, early, after=turn.seal, with_answer=True)
    assert found[0] == turn.answer
    assert early in found


def test_a_forking_request_does_not_list_an_answer_it_does_not_follow() -> None:
    turn = Turn()
    body = turn.held.log.body(turn.ask.id)
    assert body is not None
    fork = turn.admit(
        turn.ada.write(
            turn.held.id, body, parents=[turn.ask], basis=turn.seal, conflict=Conflict.FORK
        )
    )
    assert turn.answer not in listed(turn, fork, after=turn.seal, with_answer=True)


def test_only_kinds_of_the_context_are_listed() -> None:
    turn = Turn()
    join = turn.admit(turn.ada.write(turn.held.id, Join(), parents=[turn.answer]))
    request = turn.request(join, basis=turn.seal)
    assert join not in listed(turn, request, after=turn.seal)


def test_an_entry_of_someone_revoked_without_a_cut_is_not_listed() -> None:
    turn, bob = Turn(), Writer(3)
    granted = turn.grant(bob, Role.WRITER, turn.genesis)
    word = turn.admit(bob.write(turn.held.id, said("hm"), parents=[turn.answer]))
    request = turn.request(word, basis=turn.seal)
    assert word in listed(turn, request, after=turn.seal)
    revocation = Member(Revocation(bob.public))
    turn.admit(turn.ada.write(turn.held.id, revocation, parents=[granted]))
    assert word not in listed(turn, request, after=turn.seal)


def test_a_forked_lane_is_listed_up_to_its_fork() -> None:
    turn = Turn()
    twin = turn.ada.restored()
    one = turn.say("one", turn.answer)
    two = turn.admit(twin.write(turn.held.id, said("two"), parents=[turn.answer]))
    asker = Writer(1, epoch=5)
    body = turn.held.log.body(turn.ask.id)
    assert body is not None
    request = turn.admit(asker.write(turn.held.id, body, parents=[one, two], basis=turn.seal))
    assert listed(turn, request, after=turn.seal) == [turn.answer, request]


def test_a_generation_of_another_host_than_the_seals_is_not_listed() -> None:
    turn, other = Turn(), Writer(4)
    body = Member(Grant(other.public, Role.HOST))
    turn.admit(turn.ada.write(turn.held.id, body, parents=[turn.genesis]))
    stray = turn.admit(other.write(turn.held.id, answer(), parents=[turn.seal], basis=turn.seal))
    request = turn.request(turn.answer, stray, basis=turn.seal)
    found = listed(turn, request, after=turn.seal)
    assert turn.answer in found
    assert stray not in found


def test_an_answer_has_the_seal_as_its_only_parent() -> None:
    turn = Turn()
    assert is_answer(turn.answer, turn.seal.id)
    assert not is_answer(turn.answer, turn.ask.id)
    assert not is_answer(turn.answer, None)
    assert not is_answer(turn.hello, turn.genesis.id)
