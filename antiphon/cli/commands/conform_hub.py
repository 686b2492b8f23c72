"""`antiphon conform hub`: check any hub from outside (spec/conform-hub.md)."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from replica.conversation import is_loopback

if TYPE_CHECKING:
    from antiphon.conformance.writers import Writer


@suite
def hub(  # noqa: PLR0917  # options, each given by its name
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="The hub, host:port on loopback.")
    ] = "",
    list_cases: ListFlag = False,
    only: Only = "",
    restart: Annotated[
        str,
        typer.Option(metavar="COMMAND", help="A command that kills the hub and starts it again."),
    ] = "",
    vouched: Annotated[
        Path | None,
        typer.Option(help="File with the private key, in hex, of a host the hub vouches for."),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, help="Longest wait for a time of the protocol to pass."
        ),
    ] = 90,
    json_file: Json = None,
    junit: Junit = None,
    html: Html = None,
) -> None:
    """Check a hub as member, reader, stranger and host; exit 1 if it breaks a rule."""
    from antiphon.conformance.io.hub import TABLE, HubRun, by_command, judge_hub  # only here

    checks = chosen(TABLE, only)
    if list_cases:
        print_cases(checks)
        return
    if address and not is_loopback(address):
        raise typer.BadParameter("check a hub elsewhere through a tunnel that ends on loopback")
    run = HubRun(
        address,
        by_command(restart) if restart else None,
        _host_of(vouched) if vouched is not None else None,
        wait,
    )
    require_hub(address)
    with telling(len(checks)) as tell:
        outcomes = asyncio.run(judge_hub(run, checks, tell))
    finish(outcomes, json_file, junit, html)


def _host_of(path: Path) -> "Writer":
    from antiphon.conformance.writers import Writer

    try:
        return Writer.of_key(bytes.fromhex(path.read_text().strip()))
    except ValueError as error:
        raise typer.BadParameter(f"{path} has no private key in hex: {error}") from error
