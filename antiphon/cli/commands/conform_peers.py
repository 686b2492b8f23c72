"""`antiphon conform` for clients (spec/conform-client.md), hosts and recorded conversations.

The suites are imported where they run: no other command needs them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from antiphon.cli.commands.conform_report import (
    Html,
    Json,
    Junit,
    ListFlag,
    Only,
    chosen,
    finish,
    print_cases,
    require_hub,
    suite,
    telling,
)
from antiphon.cli.common import Command
from antiphon.conformance import report
from antiphon.conformance.cases import Check
from replica.ids import PublicKey, key_from_hex
from replica.io import load_or_create

Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="The hub, host:port.")]

HostKey = Annotated[
    str,
    typer.Option(
        "--host", metavar="KEY", help="The host's key; default: the first that the hub names."
    ),
]

_Run = TypeVar("_Run")


def register(conform: typer.Typer) -> None:
    """Add the commands."""
    conform.command("divergence", cls=Command)(divergence)
    conform.command("replay", cls=Command)(replay)
    conform.command("host", cls=Command)(host)
    conform.command("client", cls=Command)(client)


@suite
def divergence(
    address: Address = "",
    list_cases: ListFlag = False,
    only: Only = "",
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Other keys and ids, for a hub that holds the recorded ones."
        ),
    ] = None,
    json_file: Json = None,
    junit: Junit = None,
    html: Html = None,
) -> None:
    """Play recorded divergences against a hub; exit 1 if one ends otherwise."""
    from antiphon.conformance.io.divergence import CASES, Player, seeded
    from antiphon.conformance.io.running import outcomes_of

    if not list_cases:
        require_hub(address)
    player = Player(address)
    checks = chosen(CASES if seed is None else seeded(seed), only)
    _finish(checks, lambda found: outcomes_of(found, player), list_cases, json_file, junit, html)


@suite
def replay(
    address: Address = "",
    host: HostKey = "",
    list_cases: ListFlag = False,
    only: Only = "",
    json_file: Json = None,
    junit: Junit = None,
    html: Html = None,
) -> None:
    """Let the host of a hub replay recorded conversations; exit 1 if it finds others."""
    from antiphon.conformance.io.replay import CASES, Replayer
    from antiphon.conformance.io.running import outcomes_of

    replayer = Replayer(address, _key(host))
    if not list_cases:
        require_hub(address)
    checks = chosen(CASES, only)
    _finish(checks, lambda found: outcomes_of(found, replayer), list_cases, json_file, junit, html)


@suite
def host(
    address: Address = "",
    host_key: HostKey = "",
    key_file: Annotated[
        Path | None, typer.Option("--key", help="A key file that may create conversations.")
    ] = None,
    list_cases: ListFlag = False,
    only: Only = "",
    json_file: Json = None,
    junit: Junit = None,
    html: Html = None,
) -> None:
    """Judge the host of a hub by its seals, answers, refusals and calls; exit 1 if it is wrong."""
    from antiphon.conformance.io.host import CASES, UnderTest
    from antiphon.conformance.io.running import outcomes_of

    if key_file is not None and not key_file.exists():
        raise typer.BadParameter(f"--key: there is no file {key_file}")
    key = load_or_create(key_file) if key_file is not None else None
    run = UnderTest(address, _key(host_key), key)
    if not list_cases:
        require_hub(address)
    checks = chosen(CASES, only)
    _finish(checks, lambda found: outcomes_of(found, run), list_cases, json_file, junit, html)


@suite
def client(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="The client, which obeys commands on stdin."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(metavar="N", min=1, max=32, help="Processes of the client.")
    ] = 4,
    list_cases: ListFlag = False,
    only: Only = "",
    json_file: Json = None,
    junit: Junit = None,
    html: Html = None,
) -> None:
    """Judge a client on a hub that misbehaves; exit 1 if it is wrong."""
    if not (command or list_cases):
        raise typer.BadParameter("name the command to check: antiphon conform client -- COMMAND")

    from antiphon.conformance.io.client import CASES, Clients, run_clients

    def run(checks: list[Check[Clients]]) -> AsyncIterator[report.Outcome]:
        return run_clients(checks, command or [], jobs)

    _finish(chosen(CASES, only), run, list_cases, json_file, junit, html)


def _key(text: str) -> PublicKey | None:
    try:
        return key_from_hex(text) if text else None
    except ValueError as error:
        raise typer.BadParameter(f"--host: {error}") from error


def _finish(
    checks: list[Check[_Run]],
    run: Callable[[list[Check[_Run]]], AsyncIterator[report.Outcome]],
    list_cases: bool,
    json_file: Path | None,
    junit: Path | None,
    html: Path | None,
) -> None:
    """List the cases, or run them and report; exit 1 if one failed."""
    if list_cases:
        print_cases(checks)
        return

    async def collect() -> list[report.Outcome]:
        outcomes = list[report.Outcome]()
        with telling(len(checks)) as tell:
            async for outcome in run(checks):
                tell(outcome)
                outcomes.append(outcome)
        return outcomes

    finish(asyncio.run(collect()), json_file, junit, html)
