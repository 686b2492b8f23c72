"""A hub, a model host and a replica on them, for notebooks and scripts."""

from collections.abc import AsyncIterator
from pathlib import Path

from antiphon.daemons import Supervisor
from antiphon.library.given import check_text
from antiphon.library.io.once import async_once
from antiphon.library.io.replica import Replica, folder_path, opening
from replica.ids import PublicKey
from replica.io import get_logger
from replica.refusals import ArgumentInvalid

_log = get_logger()

FOLDER = "~/.local/share/antiphon"


@async_once
async def local_replica(
    folder: str | Path = FOLDER, *, model: str | None = None, host_module: str = "model_host"
) -> AsyncIterator[Replica]:
    """Start a hub and a model host, and open a replica linked to them; stop all on exit.

    The hub and the host are child processes; one that ends is restarted, and the logger
    "antiphon" reports it. `model` is a name or a path, as in `antiphon up --model`. Raises
    ArgumentInvalid, and DaemonFailed, which names the log of the process that did not start.

    >>> async with aio.local() as me:
    ...     await me.sync()
    True
    """
    path, models = folder_path(folder), (_word(model, "model"),) if model is not None else ()
    _word(host_module, "host_module")
    daemons = Supervisor(path, models=models, host_module=host_module, report=_log_end)
    async with daemons:
        daemons.keep_alive()
        host: PublicKey = daemons.host.ready.key
        address = daemons.hub.ready.address
        async with opening(path / "replica", hub=address, host=host) as replica:
            yield replica


def _log_end(detail: str) -> None:
    _log.warning("a daemon of antiphon.local", detail=detail)


def _word(text: str, name: str) -> str:
    """Return a text that a process can be given. Raises ArgumentInvalid."""
    if not check_text(text, name) or "\0" in text:
        raise ArgumentInvalid(f"{name} is {text!r}, which is empty or has a NUL character")
    return text
