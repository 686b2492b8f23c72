"""The walk over a graph, against a closure computed by repetition."""

from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from replica.log.graph import reach

NODES = 8
nodes = st.integers(0, NODES - 1)
graphs = st.lists(st.lists(nodes, max_size=4), min_size=NODES, max_size=NODES)
"""The neighbours of each node, with cycles, loops and doubled edges."""


def naive_reach(
    start: list[int], graph: list[list[int]], stop: Callable[[int], bool] = lambda _node: False
) -> set[int]:
    """Add the neighbours of all nodes until none is new."""
    found = {node for node in start if not stop(node)}
    while True:
        more = found | {to for node in found for to in graph[node] if not stop(to)}
        if more == found:
            return found
        found = more


@given(graphs, st.lists(nodes, max_size=3))
def test_all_is_reached_by_any_number_of_steps(graph: list[list[int]], start: list[int]) -> None:
    assert reach(start, graph.__getitem__) == naive_reach(start, graph)


@given(graphs, st.lists(nodes, max_size=3), st.sets(nodes))
def test_a_node_that_stops_the_walk_is_neither_returned_nor_followed(
    graph: list[list[int]], start: list[int], barred: set[int]
) -> None:
    found = reach(start, graph.__getitem__, barred.__contains__)
    assert found == naive_reach(start, graph, barred.__contains__)


@given(graphs, st.lists(nodes, max_size=3))
def test_each_node_found_is_asked_once(graph: list[list[int]], start: list[int]) -> None:
    asked: Counter[int] = Counter()

    def follow(node: int) -> list[int]:
        asked[node] += 1
        return graph[node]

    assert reach(start, follow) == set(asked)
    assert set(asked.values()) <= {1}


def test_a_step_may_be_any_iterable() -> None:
    assert reach(iter([3]), lambda n: (m for m in (n - 1, n - 2) if m >= 0)) == {0, 1, 2, 3}
    assert reach((), lambda _n: [1]) == set()


def test_a_long_chain_needs_no_recursion() -> None:
    assert len(reach([100_000], lambda n: (n - 1,) if n else ())) == 100_001
