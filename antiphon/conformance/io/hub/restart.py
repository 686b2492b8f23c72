"""The command that kills the hub under test and starts it again."""

import asyncio
import shlex

from antiphon.conformance.cases import wrong
from antiphon.conformance.io.hub.run import RESTART_SECONDS_MAX, Restart


def by_command(command: str) -> Restart:
    """Return a restart that runs a command of the user's, without a shell.

    The command kills the hub as a power loss would, starts it at the same address
    and ends; the hub goes on without it.
    """
    words = shlex.split(command)

    async def restart() -> None:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
        )
        try:
            status = await asyncio.wait_for(process.wait(), RESTART_SECONDS_MAX)
        except TimeoutError:
            process.kill()
            wrong(f"the restart command did not end within {RESTART_SECONDS_MAX:.0f} s")
        if status != 0:
            wrong(f"the restart command ended with status {status}")

    return restart
