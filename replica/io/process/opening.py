"""An async context that is entered in steps, and left in the reverse order."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import TypeVar

from replica.io.process.to_the_end import to_the_end

T_co = TypeVar("T_co", covariant=True)


class Opening(AbstractAsyncContextManager[T_co]):
    """The context of `enter`, which pushes on a stack how each of its steps is undone.

    It is no generator. asyncio.run closes the generators that a program leaves open all at once,
    and one that another one awaits can't be closed: Python prints a RuntimeError. So of several
    contexts inside each other the outermost alone is a generator.
    """

    def __init__(self, enter: Callable[[AsyncExitStack], Awaitable[T_co]]) -> None:
        """Enter with `enter`, once."""
        self._enter = enter
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> T_co:
        """Take the steps; undo those taken if one fails."""
        async with AsyncExitStack() as stack:
            entered = await self._enter(stack)
            self._stack = stack.pop_all()
        return entered

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Undo the steps, all of them also where the caller is cancelled meanwhile."""
        await to_the_end(self._stack.__aexit__(kind, error, trace))
