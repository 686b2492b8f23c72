"""Each rule a seal may break, one at a time (spec/03-order §3, ORD-7)."""

from dataclasses import replace

from replica.ids import Digest
from replica.log.body import Cancel, Request, Role, Sampling, Seal, listed_ids
from replica.log.entry import Conflict, Entry
from replica.order.verdict import VoidReason, is_closed
from tests.replica.order.turn import Turn
from tests.support.stories import seal_of
from tests.support.writers import Writer


def test_every_verdict_on_a_seal_says_what_to_do_next() -> None:
    for reason in VoidReason:
        assert reason.next_step.endswith(".")
        assert reason.value.startswith(("its ", "it ", "what ", "the ", "a "))


class Next(Turn):
    """A second request, which waits for its seal."""

    def __init__(self) -> None:
        super().__init__()
        self.second = self.request(self.answer, basis=self.seal)
        self.right = seal_of(
            self.held, self.second.id, (self.answer.id, self.second.id), self.seal.id
        )

    def verdict(self, body: Seal, *, by: Writer | None = None, behind: Entry | None = None):
        """Return why a seal is void, None where it counts."""
        entries = self.held.log.entries
        listed = [entries[i] for i in listed_ids(body)]
        parents = [behind or self.second]
        seal = self.admit(
            (by or self.hal).write(self.held.id, body, parents=parents, listed=listed)
        )
        return self.held.order.void.get(seal.id)

    def queued(self, *parents: Entry, by: Writer | None = None, **how) -> Entry:
        body = Request(self.hal.public, Sampling())
        return self.admit((by or self.ada).write(self.held.id, body, parents=parents, **how))


def test_a_seal_that_keeps_the_rules_counts() -> None:
    turn = Next()
    assert turn.verdict(turn.right) is None
    assert [n.id for n in turn.held.order.tips()] == [turn.held.order.seal_of[turn.second.id]]


def test_a_seal_follows_its_request_alone() -> None:
    turn = Next()
    assert turn.verdict(turn.right, behind=turn.answer) is VoidReason.PARENT_NOT_REQUEST


def test_a_seal_names_a_request() -> None:
    turn = Next()
    body = seal_of(turn.held, turn.hello.id, (turn.hello.id,), None)
    assert turn.verdict(body, behind=turn.hello) is VoidReason.REQUEST_INVALID


def test_only_the_host_that_a_request_names_seals_it() -> None:
    turn, other = Next(), Writer(4)
    turn.grant(other, Role.HOST, turn.genesis)
    body = replace(turn.right, membership_heads=turn.held.log.membership_heads())
    assert turn.verdict(body, by=other) is VoidReason.HOST_NOT_NAMED


def test_a_seal_counts_only_where_its_author_was_a_host() -> None:
    turn = Next()
    unaware = replace(turn.right, membership_heads=(turn.genesis.id,))
    assert turn.verdict(unaware) is VoidReason.HOST_NOT_MEMBER


def test_a_seal_of_a_void_request_is_void() -> None:
    turn, bob = Next(), Writer(3)
    known = turn.held.log.membership_heads()
    turn.grant(bob, Role.WRITER, turn.genesis)
    asked = turn.queued(turn.answer, by=bob, basis=turn.seal)
    ids = (turn.answer.id, asked.id)
    body = seal_of(turn.held, asked.id, ids, turn.seal.id, heads=known)
    assert turn.verdict(body, behind=asked) is VoidReason.REQUEST_VOID


def test_a_seal_extends_a_seal_that_counts() -> None:
    turn = Next()
    void = turn.hal.write(
        turn.held.id,
        seal_of(turn.held, turn.hello.id, (turn.hello.id,), None),
        parents=[turn.hello],
        listed=[turn.hello, *(turn.held.log.entries[i] for i in turn.right.membership_heads)],
    )
    turn.admit(void)
    body = replace(turn.right, prev_seal=void.id)
    assert turn.verdict(body) is VoidReason.PREV_SEAL_VOID


def test_a_forking_request_is_sealed_on_its_basis() -> None:
    turn = Next()
    fork = turn.queued(turn.hello, conflict=Conflict.FORK)
    body = seal_of(turn.held, fork.id, (fork.id,), turn.seal.id)
    assert turn.verdict(body, behind=fork) is VoidReason.BASIS_NOT_EXTENDED


def test_a_queued_request_is_sealed_on_the_branch_of_its_basis() -> None:
    turn = Next()
    ids = (turn.hello.id, turn.ask.id, turn.answer.id, turn.second.id)
    body = seal_of(turn.held, turn.second.id, ids, None)
    assert turn.verdict(body) is VoidReason.BRANCH_NOT_EXTENDED


def test_a_queued_request_skips_no_answer() -> None:
    turn = Next()
    body = seal_of(turn.held, turn.second.id, (turn.second.id,), turn.seal.id)
    assert turn.verdict(body) is VoidReason.ANSWER_SKIPPED


def test_a_queued_request_behind_a_closing_cancel_goes_on_without_the_answer() -> None:
    turn = Next()
    cancel = turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[turn.ask]))
    behind = turn.queued(cancel, basis=turn.seal)
    node, membership = turn.held.order.nodes[turn.seal.id], turn.held.log.membership
    assert is_closed(turn.held.order, node, behind, membership)
    assert not is_closed(turn.held.order, node, turn.second, membership)
    assert not is_closed(turn.held.order, None, behind, membership)
    body = seal_of(turn.held, behind.id, (behind.id,), turn.seal.id)
    assert turn.verdict(body, behind=behind) is None


def test_a_seal_lists_what_the_rule_of_coverage_yields() -> None:
    turn = Next()
    ids = (turn.answer.id, turn.hello.id, turn.second.id)
    body = seal_of(turn.held, turn.second.id, ids, turn.seal.id)
    assert turn.verdict(body) is VoidReason.COVERAGE_WRONG


def test_a_seal_states_the_digest_of_its_context() -> None:
    turn = Next()
    body = replace(turn.right, context_digest=Digest(bytes(32)))
    assert turn.verdict(body) is VoidReason.CONTEXT_DIGEST_WRONG


def test_of_two_seals_of_one_request_the_second_is_void() -> None:
    turn = Next()
    assert turn.verdict(turn.right) is None
    assert turn.verdict(turn.right) is VoidReason.SEALED_BEFORE
