"""The seal that a queued request extends; further cases are in spec/vectors/order.json."""

from unittest import mock

from replica.log.body import Grant, Revocation, Role
from replica.log.entry import Entry
from replica.order.queued import Ahead, queued_behind
from tests.support.branches import Scene
from tests.support.writers import Writer


class Left(Scene):
    """Two turns, and a request that forks behind the first of them."""

    def __init__(self) -> None:
        """Write them."""
        super().__init__()
        _, self.base, answer = self.turn()
        _, self.end, self.last = self.turn(answer, basis=self.base)
        self.fork = self.ask(answer, basis=self.base, fork=True)

    def ahead(self, *parents: Entry, basis: Entry | None) -> Ahead:
        """Return what is ahead of a queued request there."""
        order = self.held.order
        node = order.nodes[basis.id] if basis is not None else None
        return queued_behind(order, [e.id for e in parents], node)

    def node(self, seal: Entry) -> object:
        """Return the node of a seal."""
        return self.held.order.nodes[seal.id]


def test_without_a_fork_the_earliest_children_lead_on() -> None:
    left = Left()
    assert left.ahead(left.hello, basis=left.base) == Ahead(left.held.order.nodes[left.end.id])


def test_behind_a_fork_without_a_seal_there_is_its_basis() -> None:
    left = Left()
    found = left.ahead(left.say(left.fork), basis=left.base)
    assert found.node is left.node(left.base)
    assert found.fork == left.fork


def test_behind_a_sealed_fork_its_branch_goes_on() -> None:
    left = Left()
    seal = left.seal(left.fork)
    assert left.ahead(left.fork, basis=left.base) == Ahead(left.held.order.nodes[seal.id])
    answer = left.answer(seal)
    _, further, _ = left.turn(answer, basis=seal)
    assert left.ahead(left.fork, basis=left.base).node is left.node(further)
    assert left.ahead(left.fork, basis=None).node is left.node(further)


def test_a_fork_at_the_end_of_a_branch_leads_nowhere_until_others_go_on_there() -> None:
    left = Left()
    fork = left.ask(left.last, basis=left.end, fork=True)
    queued = left.say(fork)
    end = left.held.order.nodes[left.end.id]
    assert left.ahead(queued, basis=left.end) == Ahead(end, fork)
    _, beside, _ = left.turn(left.last, basis=left.end)
    assert left.ahead(queued, basis=left.end) == Ahead(end, fork, has_left=True)
    assert left.ahead(left.last, basis=left.end).node is left.node(beside)


def test_behind_a_fork_that_is_over_nothing_is_awaited() -> None:
    left = Left()
    left.refuse(left.fork)
    assert left.ahead(left.fork, basis=left.base) == Ahead(left.held.order.nodes[left.base.id])
    first = left.ask(left.fork, basis=left.base)
    seal = left.seal(first)
    assert left.ahead(first, basis=left.base).node is left.node(seal)
    assert left.ahead(left.fork, basis=left.base).node is left.node(seal)  # it lists the fork


def test_what_is_queued_behind_a_void_fork_stays_in_one_chain() -> None:
    left = Left()
    bob = Writer(3)
    grant = left.member(Grant(bob.public, Role.WRITER), left.grant)
    answer = left.held.log.entries[left.fork.header.parents[0]]
    fork = left.ask(answer, basis=left.base, fork=True, by=bob)
    first = left.ask(fork, basis=left.base)
    second = left.ask(first, basis=left.base)
    left.member(Revocation(bob.public), grant)
    assert left.ahead(fork, basis=left.base) == Ahead(left.held.order.nodes[left.base.id])
    seal = left.seal(first)
    left.answer(seal)
    assert left.ahead(first, basis=left.base).node is left.node(seal)
    left.answer(left.seal(second))
    assert len(left.held.order.tips()) == 2


def test_a_late_seal_of_a_closed_fork_takes_nothing_from_what_went_on_without_it() -> None:
    left = Left()
    ida = Writer(4)
    left.member(Grant(ida.public, Role.HOST), left.grant)
    answer = left.held.log.entries[left.fork.header.parents[0]]
    fork = left.ask(answer, basis=left.base, fork=True, host=ida)
    first = left.ask(fork, basis=left.base)
    seal = left.seal(first)
    left.seal(fork, by=ida)
    assert left.ahead(first, basis=left.base).node is left.node(seal)


def test_a_fork_further_back_than_the_basis_leads_nowhere() -> None:
    left = Left()
    found = left.ahead(left.fork, left.last, basis=left.end)
    assert found == Ahead(left.held.order.nodes[left.end.id])


def test_a_fork_at_the_root_has_no_seal_ahead() -> None:
    scene = Scene()
    _, seal, _ = scene.turn()
    fork = scene.ask(scene.hello, fork=True)
    order = scene.held.order
    assert queued_behind(order, [fork.id], None) == Ahead(None, fork, has_left=True)
    behind_seal = queued_behind(order, [fork.id], order.nodes[seal.id])
    assert behind_seal == Ahead(order.nodes[seal.id])


def test_a_fork_beside_an_answer_is_not_gone_on_with_by_who_queues_behind_that() -> None:
    scene = Scene()
    first = scene.ask()
    seal = scene.seal(first)
    beside = scene.ask(first, basis=seal, fork=True)
    answer = scene.answer(seal)
    scene.answer(scene.seal(beside))
    order = scene.held.order
    node = order.nodes[seal.id]
    assert queued_behind(order, [answer.id], node) == Ahead(node)
    further = scene.seal(scene.ask(answer, basis=seal, fork=True))
    assert queued_behind(order, [answer.id], node).node is order.nodes[further.id]


def test_many_requests_that_wait_one_behind_the_other_are_walked_once() -> None:
    left = Left()
    line = [left.fork]
    for _ in range(50):
        line.append(left.ask(line[-1], basis=left.base))
    order = left.held.order
    with mock.patch.object(order.forks, "behind", wraps=order.forks.behind) as looked:
        for request in reversed(line):
            queued_behind(order, [request.id], order.nodes[left.base.id])
    assert looked.call_count < 3 * len(line)


def test_behind_the_earliest_seal_that_lists_the_fork_also_beside_the_answer() -> None:
    scene = Scene()
    asked, base, answer = scene.turn()
    fork = scene.ask(asked, basis=base, fork=True)
    further = scene.ask(fork, basis=base, fork=True)
    beside = scene.seal(further)
    scene.turn(answer, basis=base)
    order = scene.held.order
    assert queued_behind(order, [fork.id], order.nodes[base.id]).node is order.nodes[beside.id]
