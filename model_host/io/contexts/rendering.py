"""The thread that renders contexts, in turn for all who need some.

A long context takes longer than readers and the hub should wait. The order is that of
model_host/scheduling/render_turns.py.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from model_host.scheduling import RenderTurns

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Waiting:
    work: Callable[[], Any]
    done: "asyncio.Future[Any]"


class Rendering:
    """Performs one piece of work at a time; used on the event loop alone."""

    def __init__(self) -> None:
        """Start the thread with its first work."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rendering")
        self._turns = RenderTurns[_Waiting]()
        self.is_busy = False
        """Whether a piece is being worked on."""

    @property
    def waiting(self) -> int:
        """The number of pieces that wait for their turn."""
        return len(self._turns)

    async def close(self) -> None:
        """Finish the work in progress, then end the thread. Call it when nobody waits any more."""
        await asyncio.to_thread(self._thread.shutdown)

    async def run(
        self, work: Callable[[], Result], payer: bytes, *, for_answer: bool = False
    ) -> Result:
        """Perform `work` when it is its payer's turn; return its result, or raise its error.

        The payer of an answer is the owner of the conversation, that of a call the caller.
        """
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._turns.add(payer, _Waiting(work, done), for_answer=for_answer)
        self._start_next()
        return await done

    def _start_next(self) -> None:
        while not self.is_busy and (next_one := self._turns.next()) is not None:
            if not next_one.done.done():  # else its caller has gone
                self._start(next_one)

    def _start(self, waiting: _Waiting) -> None:
        self.is_busy = True
        running = asyncio.get_running_loop().run_in_executor(self._thread, waiting.work)

        def settle(ended: "asyncio.Future[Any]") -> None:
            self.is_busy = False
            error = ended.exception()
            if waiting.done.done():
                pass
            elif error is not None:
                waiting.done.set_exception(error)
            else:
                waiting.done.set_result(ended.result())
            self._start_next()

        running.add_done_callback(settle)
