"""Work of a run that goes on to its end, whatever ends the run."""

from collections.abc import Awaitable
from typing import TypeVar

import anyio

from replica.io import to_the_end

T = TypeVar("T")


async def to_its_end(work: Awaitable[T]) -> T:
    """Await work that no cancellation of the caller interrupts; it is raised behind the end.

    A shield of anyio alone does not keep out `asyncio.timeout`, `wait_for` and `Task.cancel`.
    """
    with anyio.CancelScope(shield=True):  # a cancelled scope would cancel in each turn
        result = await to_the_end(work)
    return result  # noqa: RET504  # by its type, a scope may end its block without one
