"""Users of cached slabs: own pages and those of others, domains and their changes."""

from model_host.kv.lookup import chain
from tests.model_host.kv.indexed import A, B, C, D, E, Indexed


def test_own_pages_are_told_from_those_of_others() -> None:
    given = Indexed()
    given.add(A, 1100)
    assert given.found(A, 2000) == (1100, 1100)
    assert given.found(B, 2000) == (1100, 0)
    assert given.found(C, 2000, E) == (0, 0)


def test_a_chain_becomes_ones_own_by_use() -> None:
    given = Indexed()
    end = given.add(A, 1100)
    given.add(B, 600, parent=chain(end)[0])
    assert given.found(B, 2000) == (1100, 600)


def test_of_equal_prefixes_the_own_one_is_used() -> None:
    given = Indexed()
    given.add(A, 300)
    mine = given.add(B, 300)
    found, own = given.index.find(given.index.users.conversation(B, D), range(300))
    assert found == own
    assert found.node is mine


def test_after_a_change_of_domain_the_same_slabs_are_found_there_alone() -> None:
    given = Indexed()
    slabs = [node.slab for node in chain(given.add(A, 1100))]
    assert given.found(A, 2000, E) == (1100, 1100)
    found, _ = given.index.find(given.index.users.conversation(A, E), range(2000))
    assert [node.slab for node in chain(found.node)] == slabs
    assert given.found(B, 2000) == (0, 0)
    assert given.found(C, 2000, E) == (1100, 0)


def test_a_change_of_domain_takes_no_page_of_others_along() -> None:
    given = Indexed()
    end = given.add(A, 1100)
    given.add(B, 600, parent=chain(end)[0])
    assert given.found(B, 2000, E) == (600, 600)
    assert given.found(C, 2000, E) == (600, 0)
    assert given.found(A, 2000) == (1100, 1100)


def test_two_chains_with_equal_keys_after_a_change_of_domain_are_both_kept_whole() -> None:
    given = Indexed()
    given.add(A, 1100)
    given.add(B, 1600, E)
    assert given.found(B, 2000) == (1600, 1600)
    assert given.found(A, 2000) == (1600, 1100)
    for _ in range(7):
        given.index.evict_oldest()
        given.index.check_integrity()
    assert len(given.index) == 0


def test_forgetting_a_conversation_frees_what_it_alone_used_and_counts_everything() -> None:
    given = Indexed()
    end = given.add(A, 1100)
    given.add(B, 600, parent=chain(end)[0])
    assert given.index.forget(given.index.users.conversations[A]) == 1100
    assert given.found(B, 2000) == (600, 600)
    assert given.found(A, 2000) == (600, 0)
    assert given.index.forget(given.index.users.conversations[B]) == 600
    assert len(given.index) == 0
    assert given.slabs.used_bytes == 0
