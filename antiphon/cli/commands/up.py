"""`antiphon up`: run a hub and a model host on this machine."""

import asyncio
from typing import Annotated, get_args

import typer
from rich.text import Text

from antiphon.cli.common import (
    ModelNotFetched,
    Numerics,
    Session,
    command,
    folder_of,
    next_command,
    without_numerics,
)
from antiphon.daemons import HOST_MODULE, Daemon, DaemonFailed, Supervisor
from replica.conversation import is_loopback, require_address
from replica.ids import short
from replica.io import python, stop_signals
from replica.log import public_key
from replica.refusals import ArgumentInvalid

ListenOption = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="Serve the hub there too, with TLS, to other machines."),
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME|PATH[@NUMERICS]",
        help="A model's name, or the path of a GGUF or model folder; add @q4, @bf16 or @fp32"
        " to set its numerics. Several are offered as profiles, the first as the default.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "up", has_replica=False, rich_help_panel="Run")
    async def up(
        session: Session,
        *,
        data_dir: Annotated[
            str | None, typer.Option(metavar="<path>", help="Folder for hub/, host/ and logs/.")
        ] = None,
        hub_port: Annotated[
            int | None,
            typer.Option(
                metavar="PORT", min=0, max=65535, help="Port of the hub; 0 for a free one."
            ),
        ] = None,
        listen: ListenOption = "",
        model: ModelOption = None,
        numerics: Annotated[
            str | None,
            typer.Option(metavar="auto|q4|bf16|fp32", help="Number formats of the computation."),
        ] = None,
    ) -> None:
        """Run a hub and a model host until Ctrl-C; restart them after a crash.

        The hub vouches for this host alone: `antiphon new` grants it new conversations. The
        key of this replica is an operator of the host: `antiphon top` shows all it computes.
        """
        settings = session.settings
        if numerics not in (None, *get_args(Numerics)):
            raise ArgumentInvalid(f"--numerics is auto, q4, bf16 or fp32, not '{numerics}'")
        port = settings.hub_port if hub_port is None else hub_port
        _check_listen(listen, port)
        models = tuple(model or [settings.model])
        supervisor = Supervisor(
            settings.services_dir if data_dir is None else folder_of(data_dir, "--data-dir"),
            hub_port=port,
            listen=listen,
            models=models,
            numerics=numerics or settings.numerics,
            host_module=settings.host_module,
            operator=public_key(session.key()),
            report=session.out.note,
        )
        supervisor.check_host()
        if settings.host_module == HOST_MODULE:
            for each in models:
                await fetch_model(without_numerics(each))
        session.out.note(Text("starting the hub, then the model host …", style="dim"))
        try:
            async with supervisor:
                stop = _stop_signal()
                _report(session, supervisor)
                await _run_until_stopped(supervisor, stop)
                session.out.note("stopping")
        except DaemonFailed:
            for daemon in (supervisor.hub, supervisor.host):
                if daemon.pid is None and daemon.starts:
                    _show_log_tail(session, daemon)
            raise


def _check_listen(address: str, hub_port: int) -> None:
    """Raise ArgumentInvalid for an address that the hub can't have beside its own on loopback."""
    if not address:
        return
    found = require_address(address, port_min=0, name="--listen")
    if is_loopback(address):
        raise ArgumentInvalid("--listen is for other machines; --hub-port is the port on loopback")
    if found.is_of_all_interfaces and found.port == hub_port != 0:
        host = address.rpartition(":")[0]
        raise ArgumentInvalid(
            f"--listen: port {hub_port} is the hub's own on loopback, which is in {host};"
            f" choose another, such as {host}:{hub_port + 1}"
        )


async def fetch_model(model: str) -> None:
    """Fetch a model known by name, with progress on stderr; do nothing for a path."""
    if "/" in model or model.endswith(".gguf"):
        return
    process = await asyncio.create_subprocess_exec(
        *python("-m", "model_host", "pull", model), stdout=asyncio.subprocess.DEVNULL
    )
    if await process.wait():
        raise ModelNotFetched


def _stop_signal() -> asyncio.Event:
    """Return an event that the signals which stop a daemon set from now on."""
    stop = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _run_until_stopped(supervisor: Supervisor, stop: asyncio.Event) -> None:
    supervisor.keep_alive()
    stopping = asyncio.create_task(stop.wait())
    failing = asyncio.create_task(supervisor.failed())
    done, _ = await asyncio.wait((stopping, failing), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    failing.cancel()
    if failing in done:
        failing.result()


def _report(session: Session, supervisor: Supervisor) -> None:
    hub, host = supervisor.hub.ready, supervisor.host.ready
    models = " ".join(host.words[:-1])  # the default first
    if session.out.as_json:
        session.out.emit(
            {
                "hub": {
                    "address": hub.address,
                    "key": hub.key.hex(),
                    "pid": supervisor.hub.pid,
                    "public": list(hub.words),
                },
                "host": {
                    "address": host.address,
                    "key": host.key.hex(),
                    "pid": supervisor.host.pid,
                    "model": models.split(", ")[0],
                    "models": models.split(", "),
                    "profile": host.words[-1] if host.words else None,
                },
                "data_dir": str(supervisor.data_dir),
            }
        )
        return
    lines = [
        ("hub", f"{hub.address:<18}", f"key {short(hub.key)}  pid {supervisor.hub.pid}"),
        ("host", f"{host.address:<18}", f"key {short(host.key)}  pid {supervisor.host.pid}"),
        ("model", models, ""),
        ("data", str(supervisor.data_dir), ""),
        *(("public", address, f"TLS, key {hub.key.hex()}") for address in hub.words),
        ("next", _next_commands(session, hub.address), "in another terminal"),
    ]
    for name, value, rest in lines:
        session.out.show(Text.assemble((f"{name:<7}", "dim"), value, "  ", (rest, "dim")))
    session.out.note(Text("Ctrl-C stops both", style="dim"))


def _next_commands(session: Session, hub: str) -> str:
    return " && ".join(next_command(session.settings, word, hub=hub) for word in ("new", "chat"))


def _show_log_tail(session: Session, daemon: Daemon) -> None:
    words = daemon.log_tail()
    if words:
        session.out.note(Text(f"--- {daemon.log_file}", style="dim"))
        session.out.note(words)
