"""Steps of work on the event loop, with turns for everything else between them (LINK-92).

A hub has one thread. All that a call needs besides its own step (the connection, the disk,
the answer) takes turns of the loop, and each turn would last as long as the steps of all
other calls together. So steps have a slice of time; then the loop turns without any of those who
had it, and those that wait are served in the order of syncd/bounds/step_queue.py (DECISIONS D397).
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from replica.ids import PublicKey
from replica.link import Steps
from syncd.bounds import Payer, StepQueue

SLICE_S = 0.002
"""Time of the steps between two pauses; the last one may take longer."""
PAUSE_TURNS = 6
"""Turns of the event loop in a pause: an idle loop takes some 0.1 ms for them."""
LONG_PAUSE_S = 0.002
"""Time of a pause behind a slice of one payer, if there were steps of others within OTHERS_S.

The threads of gRPC and of SQLite take up what they did only while the loop waits.
"""
PAUSES_MAX = 10
"""A step that took as long as several slices is followed by as many pauses, up to these; and a
pause in which streams come by as many more."""
OTHERS_S = 1.0
SHORT_STEPS_MAX = 16
"""Steps of some 0.1 ms in one turn of the loop that wait for nobody: together about a slice."""
IDLE_S = 0.001
"""Time without a step after which a new slice begins without a pause."""

_Result = TypeVar("_Result")


class Pacer:
    """Lets the work of keys wait for its next step while the loop has had enough."""

    def __init__(self, payer_of: Callable[[PublicKey], Payer]) -> None:
        """Start without work; `payer_of` tells who pays for the steps of a key."""
        self._payer_of = payer_of
        self._queue: StepQueue[asyncio.Future[None]] = StepQueue()
        self._payer: Payer | None = None
        """The payer whose step runs; another step ends it, or the turn of the loop."""
        self._began = 0.0
        self._slice_s = 0.0
        self._slice_payers: set[Payer] = set()
        self._pause_s = 0.0
        """Time of the steps of others within a pause."""
        self._last: Payer | None = None
        self._changed_at = float("-inf")
        """When a step was of another payer than the one before."""
        self._pauses = False
        self._is_long = self._has_stream_come = False
        self._prolonged = 0
        self._looks: asyncio.Handle | None = None
        self._short_steps = 0

    async def step(self, key: PublicKey) -> None:
        """Return when a key's work may go on for some milliseconds, to its next await or step.

        It returns without a turn of the loop while the slice lasts.
        """
        payer, now = self._payer_of(key), time.perf_counter()
        left_s = SLICE_S - self._slice_s - (now - self._began)
        if payer == self._payer and left_s > 0 and not self._queue:
            return  # the step goes on
        if self._pauses:
            self._end_step(now)
            if self._may_step_in_pause(payer):
                self._begin_step(payer, now)
                return
        elif not self._queue:
            self._end_step(now)
            if now - self._began > IDLE_S:
                self._begin_slice()
            if self._slice_s < SLICE_S:
                self._slice_payers.add(payer)
                self._begin_step(payer, now)
                return
            self._pause()
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.add(payer, granted)
        await granted
        now = time.perf_counter()
        if self._payer == payer:
            self._began = now
        else:  # others had their steps since it was granted
            self._end_step(now)
            self._begin_step(payer, now)

    async def short_step(self, key: PublicKey) -> None:
        """Return as `step` does; at once, while the turn of the loop had few short steps yet.

        The end of a turn is noted only behind some: to note each costs a turn per frame.
        """
        self._short_steps += 1
        if self._short_steps == SHORT_STEPS_MAX // 2:
            asyncio.get_running_loop().call_soon(self._end_short_steps)
        if self._short_steps > SHORT_STEPS_MAX:
            await self.step(key)

    def _end_short_steps(self) -> None:
        self._short_steps = 0

    def note_stream(self, key: PublicKey) -> None:
        """Note a stream that begins: a pause behind its key's slice lasts until no more come.

        gRPC accepts them one by one, and calls of others behind them (DECISIONS D398).
        """
        if self._is_long and self._payer_of(key) in self._slice_payers:
            self._has_stream_come = True

    async def in_steps(self, steps: Steps[_Result], key: PublicKey) -> _Result:
        """Run a key's work in steps; return its result."""
        while True:
            await self.step(key)
            try:
                next(steps)
            except StopIteration as done:
                result: _Result = done.value
                return result

    def _may_step_in_pause(self, payer: Payer) -> bool:
        """Say whether a payer had no step in the slice, and comes before all that wait."""
        if payer in self._slice_payers or self._pause_s >= SLICE_S:
            return False
        return self._queue.precedes(payer)

    def _begin_step(self, payer: Payer, now: float) -> None:
        if self._last != payer:
            if self._last is not None:
                self._changed_at = now
            self._last = payer
        self._payer, self._began = payer, now
        if self._looks is None:
            self._looks = asyncio.get_running_loop().call_soon(self._look)

    def _end_step(self, now: float) -> None:
        if self._payer is not None:
            taken_s = now - self._began
            if self._pauses:
                self._pause_s += taken_s
            else:
                self._slice_s += taken_s
            self._queue.note(self._payer, taken_s)
            self._payer, self._began = None, now

    def _look(self) -> None:
        """Go on at the end of the turn in which a step began."""
        self._looks = None
        self._end_step(time.perf_counter())
        if self._pauses:
            return
        if self._slice_s >= SLICE_S:
            self._pause()
        else:
            self._grant()

    def _pause(self) -> None:
        self._pauses, self._pause_s = True, 0.0
        loop = asyncio.get_running_loop()
        has_others = time.perf_counter() - self._changed_at < OTHERS_S
        pauses = min(PAUSES_MAX, int(self._slice_s / SLICE_S))
        self._is_long, self._prolonged = has_others and len(self._slice_payers) == 1, 0
        if self._is_long:
            loop.call_later(pauses * LONG_PAUSE_S, self._turn, 1)
        else:
            loop.call_soon(self._turn, pauses * PAUSE_TURNS)

    def _turn(self, left: int) -> None:
        if left > 1:
            asyncio.get_running_loop().call_soon(self._turn, left - 1)
            return
        self._end_step(time.perf_counter())
        has_come, self._has_stream_come = self._has_stream_come, False
        if has_come and self._prolonged < PAUSES_MAX:
            self._prolonged, self._pause_s = self._prolonged + 1, 0.0
            asyncio.get_running_loop().call_later(LONG_PAUSE_S, self._turn, 1)
            return
        self._pauses = self._is_long = False
        self._begin_slice()
        self._grant()

    def _begin_slice(self) -> None:
        self._slice_s = 0.0
        self._slice_payers.clear()

    def _grant(self) -> None:
        """Give a step to the next in order that still waits."""
        now = time.perf_counter()
        if self._looks is not None:
            self._looks.cancel()  # what is granted begins with the next turn
            self._looks = None
        while self._queue:
            payer, granted = self._queue.take()
            if not granted.done():
                granted.set_result(None)
                self._slice_payers.add(payer)
                self._begin_step(payer, now)
                return
            self._queue.note(payer, 0.0)  # its call was cancelled
