"""Kill a program at each of its writes to the store, and run it again: FORM FOLDER HUB.

Each run is a forked child, so that Python and gRPC are loaded once. For each kill a line
says the number of the write, the side of it on which the child was killed, the outcome of
the second run, and the number of effects. Not for use inside a process with threads.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path

from replica.imports import uncollected

with uncollected():  # and before the forks, with what the program imports when it uses it
    import anyio._backends._asyncio  # noqa: F401
    import grpc.aio  # noqa: F401

    import antiphon.aio
    import antiphon.library.io.blocking
    import antiphon.library.io.local
    import antiphon.library.io.replica  # noqa: F401
    import replica.document.projection
    import replica.io.driver.replica  # noqa: F401
    from replica.io.store.store import Store
    from tests.crash import whole_program

SIDES = ("before", "after")


def kill_at(number: int, side: str) -> None:
    """Let this process kill itself at the write with this number, before or after it."""
    writes = count(1)

    def counted(write: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def perform(*arguments: object, **more: object) -> None:
            is_last = next(writes) == number
            if is_last and side == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            await write(*arguments, **more)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)

        return perform

    Store.append = counted(Store.append)  # type: ignore[method-assign]
    Store.put_meta = counted(Store.put_meta)  # type: ignore[method-assign]


def child(folder: Path, form: str, hub: str, arm: Callable[[], None]) -> bool:
    """Run the program in a child that `arm` prepares; say whether it was killed."""
    process = os.fork()
    if process == 0:
        arm()
        sys.stdout = (folder / "printed.txt").open("w")
        try:
            whole_program.run(form, folder, hub)
        finally:
            sys.stdout.flush()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


def main() -> None:
    """Kill the program at one write after the other until it ends before it gets there.

    The sides alternate, and begin with another one in each form: both have one implementation.
    """
    form, root, hub = sys.argv[1:]
    for write in count(1):
        side, folder = SIDES[(write + (form == "async")) % 2], Path(root) / str(write)
        folder.mkdir(parents=True)
        if not child(folder, form, hub, partial(kill_at, write, side)):
            return
        child(folder, form, hub, lambda: None)
        printed = (folder / "printed.txt").read_text().strip()
        effects = len((folder / "bookings.txt").read_text().splitlines())
        print(f"{write} {side}: {printed}, {effects} booking", flush=True)


if __name__ == "__main__":
    main()
