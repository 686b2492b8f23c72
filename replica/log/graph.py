"""The one graph walk, used for ancestors and for followers.

Pure. Entries form a graph by the ids they name; seals form a tree. The caller
states the neighbours of a node and the end of the walk.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from replica.log.meter import Meter

_Node = TypeVar("_Node", bound=Hashable)


def reach(
    start: Iterable[_Node],
    follow: Callable[[_Node], Iterable[_Node]],
    stop: Callable[[_Node], bool] | None = None,
    *,
    meter: Meter | None = None,
) -> set[_Node]:
    """Return the nodes reachable from `start`, `start` itself included.

    `follow` is called once per node found. A node for which `stop` is true is
    neither returned nor followed. With the `meter` of a log, the walk has turns.
    """
    reached: set[_Node] = set()
    todo = list(start)
    while todo:
        at = todo.pop()
        if at not in reached and (stop is None or not stop(at)):
            reached.add(at)
            todo.extend(follow(at))
            if meter is not None:
                meter.turn()
    return reached
