"""The client under test as processes, each of which runs one case at a time."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from antiphon.conformance.cases import Check, NotApplicable, Violation
from antiphon.conformance.io.client.session import Clients
from antiphon.conformance.io.process import Answerer, CommandGone, NoAnswer
from antiphon.conformance.io.running import outcome_of
from antiphon.conformance.report import Outcome
from antiphon.conformance.suites.recording import Json


class Process:
    """A client that is a process of its own."""

    def __init__(self, answerer: Answerer) -> None:
        """Ask `answerer`, from other threads."""
        self._answerer = answerer

    async def answer(self, command: Json) -> Json:
        """Write a command and read its answer. Raises Violation, and NotApplicable once gone."""
        try:
            return await asyncio.to_thread(self._answerer.ask, command)
        except NoAnswer as error:
            raise Violation(f"{command['do']}: {error}") from error
        except CommandGone as error:
            raise NotApplicable(str(error)) from error


async def run_clients(
    checks: Sequence[Check[Clients]], command: Sequence[str], jobs: int
) -> AsyncIterator[Outcome]:
    """Run cases on `jobs` processes of a command; yield the outcomes in the order given.

    Raises CommandUnusable.
    """
    answerers: list[Answerer] = []
    try:
        for _ in range(min(jobs, len(checks))):
            answerers.append(Answerer(command))
        clients = Clients(*map(Process, answerers))
        tasks = [asyncio.create_task(outcome_of(one, clients)) for one in checks]
        for task in tasks:
            yield await task
    finally:
        for answerer in answerers:
            answerer.close()
