"""The thread that renders contexts, in turn for all who need some.

A long context takes longer than readers and the hub should wait. The order is that of
model_host/scheduling/render_turns.py. What a call renders is read from its conversation on the
event loop, in the call's turn too: a long conversation takes 0.1 s. Behind it no other call is
read for as long as that took, so all calls together leave half of the loop to others.
"""

import asyncio
import time
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
    is_read: bool = False
    """Whether `work` is called on the loop and returns the work for the thread."""


class Rendering:
    """Performs one piece of work at a time; used on the event loop alone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start the thread with its first work; `clock` returns seconds."""
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rendering")
        self._turns = RenderTurns[_Waiting]()
        self.is_busy = False
        """Whether a piece is being worked on."""
        self._read_again_at = 0.0
        """When the next conversation may be read, in seconds of the clock."""
        self._wake: asyncio.TimerHandle | None = None

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

    async def read(self, read: Callable[[], Callable[[], Result]], payer: bytes) -> Result:
        """Perform the work that `read` returns for a call, which reads on the loop in its turn.

        The caller's role may have changed until then, so `read` checks it.
        """
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._turns.add(payer, _Waiting(read, done, is_read=True), for_answer=False)
        self._start_next()
        return await done

    def _start_next(self) -> None:
        while not self.is_busy:
            rest_s = self._read_again_at - self._clock()
            next_one = self._turns.next(with_calls=rest_s <= 0)
            if next_one is None:
                if self._turns and self._wake is None:
                    loop = asyncio.get_running_loop()
                    self._wake = loop.call_later(rest_s, self._wake_up)
                return
            if not next_one.done.done():  # else its caller has gone
                self._start(next_one)

    def _wake_up(self) -> None:
        self._wake = None
        self._start_next()

    def _start(self, waiting: _Waiting) -> None:
        work = waiting.work
        if waiting.is_read:
            began = self._clock()
            try:
                work = waiting.work()
            except Exception as error:  # noqa: BLE001  # raised at the caller
                waiting.done.set_exception(error)
                return
            finally:
                self._read_again_at = 2 * self._clock() - began
        self.is_busy = True
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)

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
