"""The walk over a graph: everything that asks for ancestors or followers takes it.

Pure. Entries form a graph by what they name; seals form a tree. Whoever walks
either says what one step leads to, and where the walk ends.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

_Node = TypeVar("_Node", bound=Hashable)


def reach(
    start: Iterable[_Node],
    follow: Callable[[_Node], Iterable[_Node]],
    stop: Callable[[_Node], bool] | None = None,
) -> set[_Node]:
    """Return what any number of steps from `start` reaches, `start` itself included.

    `follow` is asked once for each node found. What `stop` holds for is neither
    returned nor passed through.
    """
    reached: set[_Node] = set()
    todo = list(start)
    while todo:
        at = todo.pop()
        if at not in reached and (stop is None or not stop(at)):
            reached.add(at)
            todo.extend(follow(at))
    return reached
