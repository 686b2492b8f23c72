"""Verifies signatures on a thread, one hop for all entries that came meanwhile.

A signature takes some 100 us, more than all else that a hub does for an entry,
and the `cryptography` package releases the interpreter's lock for it: so the
event loop goes on, and a hub uses a second core. An entry whose signature is
wrong comes back as it was, for the core to refuse.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from replica.log import Entry, verified

_Verified = tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class _Job:
    entries: Sequence[Entry]
    done: "asyncio.Future[_Verified]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Verifier:
    """Marks entries as verified; jobs are done in the order they were given."""

    def __init__(self) -> None:
        """Start no thread yet."""
        self._thread = ThreadPoolExecutor(1, "verifier")
        self._queued: list[_Job] = []
        self._is_busy = False

    async def verify(self, entries: Sequence[Entry]) -> _Verified:
        """Return the entries in order, those with a valid signature marked `is_verified`."""
        job = _Job(entries)
        self._queued.append(job)
        if not self._is_busy:
            self._begin()
        return await job.done

    def close(self) -> None:
        """Finish the jobs of the thread; call `verify` no more."""
        self._thread.shutdown()

    def _begin(self) -> None:
        jobs, self._queued = self._queued, []
        self._is_busy = True
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._thread, _verify_all, jobs)
        running.add_done_callback(partial(self._finish, jobs))

    def _finish(self, jobs: Sequence[_Job], running: "asyncio.Future[list[_Verified]]") -> None:
        self._is_busy = False
        if self._queued:
            self._begin()
        error = running.exception()
        for number, job in enumerate(jobs):
            if job.done.done():  # its caller was cancelled
                continue
            if error is None:
                job.done.set_result(running.result()[number])
            else:
                job.done.set_exception(error)


def _verify_all(jobs: Sequence[_Job]) -> list[_Verified]:
    return [tuple(map(verified, job.entries)) for job in jobs]
