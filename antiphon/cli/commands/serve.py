"""`antiphon hub serve` and `antiphon host serve`: run one daemon, in place of this process."""

import os
import sys
from typing import Annotated

import typer

from antiphon.cli.common import Group, Session, command
from replica.io import TYPED_AS, python

_ANY_OPTION = {"ignore_unknown_options": True, "help_option_names": ["-h"]}
Options = Annotated[
    list[str] | None,
    typer.Argument(metavar="[OPTION]...", help="Options of the daemon; --help lists them."),
]


def register(app: typer.Typer) -> None:
    """Add the group of the host."""
    group = typer.Typer(cls=Group, no_args_is_help=True)
    app.add_typer(group, name="host", help="Run a model host.", rich_help_panel="Run")

    @command(group, "serve", has_replica=False, context_settings=_ANY_OPTION)
    def serve_host(session: Session, options: Options = None) -> None:
        """Run one model host until Ctrl-C: `python -m model_host serve`.

        `--hub HOST:PORT` names its hub, and off loopback `--hub-key KEY` the hub's key. The
        host itself is served on loopback only.
        """
        _replace_with("antiphon host serve", [session.settings.host_module, "serve"], options)


def register_hub(group: typer.Typer) -> None:
    """Add `serve` to the group of the hub."""

    @command(group, "serve", has_replica=False, context_settings=_ANY_OPTION)
    def serve_hub(session: Session, options: Options = None) -> None:  # noqa: ARG001
        """Run one hub until Ctrl-C: `python -m syncd`.

        It prints its addresses and its key. `--listen HOST:PORT` serves other machines, with
        TLS; several addresses are separated by commas.
        """
        _replace_with("antiphon hub serve", ["syncd"], options)


def _replace_with(typed: str, module: list[str], options: list[str] | None) -> None:
    # A daemon handles signals and its ready line itself, so it needs no process above it.
    argv = python("-m", *module, *(options or []))
    environment = os.environ | {TYPED_AS: typed}
    os.execve(sys.executable, argv, environment)  # noqa: S606  # a shell would split the options
