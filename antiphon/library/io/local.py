"""A hub, a model host and a replica on them, for notebooks and scripts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from antiphon.cli.supervisor import Supervisor
from antiphon.library.io.replica import Replica, folder_path, opening
from replica.ids import PublicKey

FOLDER = "~/.local/share/antiphon"


@asynccontextmanager
async def local_replica(
    folder: str | Path = FOLDER, *, model: str | None = None, host_module: str = "model_host"
) -> AsyncIterator[Replica]:
    """Start a hub and a model host as children, and open a replica on them; stops all at the end.

    `model` is a name or a path, as in `antiphon up --model`. Raises DaemonFailed.

    >>> async with aio.local() as me:
    ...     await me.sync()
    True
    """
    path = folder_path(folder)
    daemons = Supervisor(
        path, models=(model,) if model else (), host_module=host_module, report=lambda _line: None
    )
    async with daemons:
        daemons.keep_alive()
        host: PublicKey = daemons.host.ready.key
        address = daemons.hub.ready.address
        async with opening(path / "replica", hub=address, host=host) as replica:
            yield replica
