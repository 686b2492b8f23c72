"""Nodes of the tree of seals: chains, and coverage shared until a fork."""

import pytest

from replica.ids import Digest, EntryId
from replica.log.body import Seal
from replica.order import node as nodes
from replica.order.node import Coverage, SealNode, coverage_up_to

NOTHING = Digest(bytes(32))


def entry(number: int) -> EntryId:
    return EntryId(bytes([number]) * 32)


def node(number: int, parent: SealNode | None, *listed: EntryId) -> SealNode:
    """Add a seal that lists these entries, as the order does."""
    seal = Seal(
        listed[-1], parent.id if parent else None, listed, NOTHING, NOTHING, NOTHING, (), ()
    )
    depth = parent.depth + 1 if parent else 0
    added = SealNode(entry(number), seal, b"hal", parent, depth, coverage_up_to(parent))
    added.coverage.depth_of.update(dict.fromkeys(listed, depth))
    added.coverage.length = depth + 1
    return added


def test_a_chain_runs_from_the_first_seal_to_this_one() -> None:
    first = node(1, None, entry(10))
    second = node(2, first, entry(11))
    assert [n.id for n in second.chain()] == [first.id, second.id]
    assert first.chain() == [first]


def test_a_seal_covers_what_its_chain_lists_and_nothing_later() -> None:
    first = node(1, None, entry(10))
    second = node(2, first, entry(11))
    assert second.covers(entry(10))
    assert second.covers(entry(11))
    assert not first.covers(entry(11))
    assert not second.covers(entry(12))


def test_an_unforked_chain_shares_one_coverage() -> None:
    first = node(1, None, entry(10))
    assert node(2, first, entry(11)).coverage is first.coverage


def test_a_fork_starts_with_the_coverage_before_it() -> None:
    first = node(1, None, entry(10))
    left = node(2, first, entry(11))
    right = node(3, first, entry(12))
    assert right.coverage is not left.coverage
    assert (right.covers(entry(10)), right.covers(entry(11))) == (True, False)
    assert (left.covers(entry(12)), first.covers(entry(12))) == (False, False)


def test_siblings_share_the_coverage_before_them() -> None:
    first = node(1, None, *(entry(n) for n in range(50, 100)))
    siblings = [node(n, first, entry(n)) for n in range(10, 14)]
    assert [len(n.coverage.depth_of) for n in siblings] == [51, 1, 1, 1]
    assert all(n.covers(entry(50)) for n in siblings)
    assert [n.covers(entry(11)) for n in siblings] == [False, True, False, False]


def test_forks_in_forks_see_their_own_chain_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "FORKS_MAX", 3)
    at = node(0, None, entry(100))
    for level in range(10):
        side = node(2 * level + 1, at, entry(101 + 2 * level))
        at = node(2 * level + 2, at, entry(102 + 2 * level))
        assert at.coverage.forks <= 3
        assert at.covers(entry(100))
        assert not at.covers(side.seal.entries[0])
    listed = {i for n in at.chain() for i in n.seal.entries}
    assert {i for i in map(entry, range(100, 122)) if at.covers(i)} == listed


def test_a_seal_extends_the_seals_of_its_chain_and_no_others() -> None:
    chain = [node(0, None, entry(100))]
    for number in range(1, 40):
        chain.append(node(number, chain[-1], entry(100 + number)))
    other = node(50, chain[20], entry(150))
    for at, one in enumerate(chain):
        assert [one.extends(before) for before in chain] == [n <= at for n in range(40)]
        assert other.extends(one) == (at <= 20)
        assert not one.extends(other)


def test_without_a_parent_coverage_is_empty() -> None:
    assert coverage_up_to(None) == Coverage()


def test_a_seal_lists_the_answer_of_its_parent_only_once_there_is_one_in_it() -> None:
    first = node(1, None, entry(10))
    second = node(2, first, entry(11), entry(12))
    assert not second.lists_answer_of(first)
    first.generation = entry(13)
    assert not second.lists_answer_of(first)
    first.generation = entry(11)
    assert second.lists_answer_of(first)


def test_a_seal_lists_its_own_entries_and_none_of_its_chain_or_of_seals_beside_it() -> None:
    first = node(1, None, entry(10))
    second = node(2, first, entry(11), entry(12))
    beside = node(3, first, entry(13))
    assert [second.lists(entry(number)) for number in range(10, 14)] == [False, True, True, False]
    assert [beside.lists(entry(number)) for number in range(10, 14)] == [False, False, False, True]
