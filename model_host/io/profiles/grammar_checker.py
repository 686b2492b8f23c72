"""Compiles the grammars of members in processes of their own, before the host does (D160)."""

import asyncio
import signal
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from model_host.grammar import GrammarSource
from model_host.grammar_process import OUT_OF_MEMORY
from model_host.refusals import GrammarInvalid
from model_host.scheduling import PayerRing
from replica.errors import HostError
from replica.ids import Digest
from replica.io import python
from replica.limits import GRAMMAR_CPU_S_MAX, GRAMMARS_MAX

WALL_S_MAX = 60.0
"""Time in which a process must end; CPU time, which is limited more tightly, ends it before.

Where it does not, the machine is busy: the grammar is refused once, and checked again later.
"""
VERDICTS_KEPT = 1024
ATTEMPTS = 2
"""Processes that are tried for one grammar, where others end the first."""

_COSTLY = "compiling it takes too much time, memory or stack"
_ABSENT = "The process that checks grammars does not run here."
_COSTLY_ENDS = {
    OUT_OF_MEMORY,
    -signal.SIGVTALRM,  # of its timer
    -signal.SIGSEGV,  # of its stack
    -signal.SIGBUS,
    -signal.SIGABRT,  # by the engine, where memory ends at a place that can't fail
}
"""The ends of a process that are due to its grammar."""


@dataclass
class _Running:
    """A compilation, and how many callers wait for its verdict."""

    task: asyncio.Task[str | None]
    waiting: int = 0


class GrammarChecker:
    """Checks grammars, each once at a time, and keeps the verdicts."""

    def __init__(self) -> None:
        """Start without verdicts."""
        self._problems: OrderedDict[Digest, str] = OrderedDict()
        self._running: dict[Digest, _Running] = {}
        self._places = _Places(GRAMMARS_MAX)

    async def check(self, source: GrammarSource, payer: bytes) -> None:
        """Raise GrammarInvalid for a grammar that the engine can't compile within limits.

        Payers have their grammars checked in turn; that of an answer is the owner of the
        conversation. Raises HostError where the process does not run.
        """
        problem = self._problems.get(source.digest)
        if problem is None:
            problem = await self._found(source, payer)
        if problem is None:
            raise GrammarInvalid(_COSTLY, is_costly=True)
        if problem:
            raise GrammarInvalid(source.explained(problem), is_costly=problem == _COSTLY)

    async def _found(self, source: GrammarSource, payer: bytes) -> str | None:
        """Compile a grammar, or wait for who does; the compilation ends with its last caller."""
        digest = source.digest
        running = self._running.get(digest)
        if running is None:
            task = asyncio.create_task(self._compile(source, payer))
            running = self._running[digest] = _Running(task)
        running.waiting += 1
        try:
            return await asyncio.shield(running.task)
        finally:
            running.waiting -= 1
            if not running.waiting:
                del self._running[digest]
                running.task.cancel()
                await asyncio.wait([running.task])

    async def _compile(self, source: GrammarSource, payer: bytes) -> str | None:
        async with self._places.one(payer):
            problem = await _problem_of(source)
        if problem is not None:
            self._keep(source.digest, problem)
        return problem

    def _keep(self, digest: Digest, problem: str) -> None:
        self._problems[digest] = problem
        if len(self._problems) > VERDICTS_KEPT:
            self._problems.popitem(last=False)


class _Places:
    """Places for processes, which payers have in turn."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting = PayerRing[asyncio.Future[None]]()

    @asynccontextmanager
    async def one(self, payer: bytes) -> AsyncIterator[None]:
        """Wait for a place, and have it for the block."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(payer, granted)
        self._grant()
        try:
            await granted
            yield
        finally:
            if granted.done() and not granted.cancelled():
                self._free += 1
                self._grant()

    def _grant(self) -> None:
        while self._free and self._waiting:
            granted = self._waiting.next()
            if not granted.done():  # else its caller has gone
                self._free -= 1
                granted.set_result(None)


async def _problem_of(source: GrammarSource) -> str | None:
    """Return what is wrong with a grammar, empty if nothing; None if the process took too long.

    Another process is asked where one was ended by others, for example for its memory.
    """
    for _ in range(ATTEMPTS):
        status, problem = await _tried(source)
        if status is None or not status:
            return problem
        if status in _COSTLY_ENDS:
            return problem or _COSTLY  # it may end while it looks for the name of a grammar
        if status in (1, 2):
            raise HostError(_ABSENT)
    raise HostError("The process that checks grammars was ended by others.")


async def _tried(source: GrammarSource) -> tuple[int | None, str | None]:
    """Return the exit status of a process and its last line; None and None if it took too long.

    Raises HostError where the system starts no process, as without a free descriptor.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *python("-m", "model_host.grammar_process", str(GRAMMAR_CPU_S_MAX)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise HostError(_ABSENT) from error
    try:
        async with asyncio.timeout(WALL_S_MAX):
            problem, _ = await process.communicate(source.text.encode())
    except TimeoutError:
        return None, None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = problem.decode(errors="replace").splitlines()
    return process.returncode, lines[-1] if lines else ""
