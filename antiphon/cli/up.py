"""`antiphon up`: run a hub and a model host on this machine."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.text import Text

from antiphon.cli.command import command
from antiphon.cli.config import Numerics
from antiphon.cli.errors import DaemonFailed, ModelNotFetched
from antiphon.cli.session import Session
from antiphon.cli.supervisor import Daemon, Supervisor
from replica.ids import short
from replica.refusals import ArgumentInvalid


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "up", has_replica=False, rich_help_panel="Run")
    async def up(
        session: Session,
        *,
        data_dir: Annotated[
            Path | None, typer.Option(help="Folder for hub/, host/ and logs/.")
        ] = None,
        hub_port: Annotated[
            int | None,
            typer.Option(
                metavar="PORT", min=0, max=65535, help="Port of the hub; 0 for a free one."
            ),
        ] = None,
        model: Annotated[
            str | None, typer.Option(help="A model's name, or the path of a GGUF or model folder.")
        ] = None,
        numerics: Annotated[
            str | None,
            typer.Option(metavar="q4|bf16|fp32", help="Number formats of the computation."),
        ] = None,
    ) -> None:
        """Run a hub and a model host until Ctrl-C; restart them after a crash.

        The hub vouches for this host alone: `antiphon new` grants it new conversations.
        """
        settings = session.settings
        if numerics not in (None, *get_args(Numerics)):
            raise ArgumentInvalid(f"--numerics is q4, bf16 or fp32, not '{numerics}'")
        supervisor = Supervisor(
            data_dir or settings.services_dir,
            hub_port=settings.hub_port if hub_port is None else hub_port,
            model=model or settings.model,
            numerics=numerics or settings.numerics,
            host_module=settings.host_module,
            report=session.out.note,
        )
        if settings.host_module == "model_host":
            await fetch_model(model or settings.model)
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


async def fetch_model(model: str) -> None:
    """Fetch a model known by name, with progress on stderr; do nothing for a path."""
    if "/" in model or model.endswith(".gguf"):
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "model_host", "pull", model, stdout=asyncio.subprocess.DEVNULL
    )
    if await process.wait():
        raise ModelNotFetched


def _stop_signal() -> asyncio.Event:
    """Return an event that SIGINT, SIGTERM and SIGHUP set from now on."""
    stop = asyncio.Event()
    # SIGHUP too: a closed terminal must not leave daemons behind.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
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
    model = " ".join(host.words[:-1])
    if session.out.as_json:
        session.out.emit(
            {
                "hub": {"address": hub.address, "key": hub.key.hex(), "pid": supervisor.hub.pid},
                "host": {
                    "address": host.address,
                    "key": host.key.hex(),
                    "pid": supervisor.host.pid,
                    "model": model,
                    "profile": host.words[-1] if host.words else None,
                },
                "data_dir": str(supervisor.data_dir),
            }
        )
        return
    lines = [
        ("hub", f"{hub.address:<18}", f"key {short(hub.key)}  pid {supervisor.hub.pid}"),
        ("host", f"{host.address:<18}", f"key {short(host.key)}  pid {supervisor.host.pid}"),
        ("model", model, ""),
        ("data", str(supervisor.data_dir), ""),
        ("next", _next_command(session, hub.address), "in another terminal"),
    ]
    for name, value, rest in lines:
        session.out.show(Text.assemble((f"{name:<7}", "dim"), value, "  ", (rest, "dim")))
    session.out.note(Text("Ctrl-C stops both", style="dim"))


def _next_command(session: Session, hub_address: str) -> str:
    same = hub_address == session.settings.hub
    option = "" if same else f" --hub-address {hub_address}"
    return f"antiphon new{option} && antiphon chat{option}"


def _show_log_tail(session: Session, daemon: Daemon) -> None:
    words = daemon.log_tail()
    if words:
        session.out.note(Text(f"--- {daemon.log_file}", style="dim"))
        session.out.note(words)
