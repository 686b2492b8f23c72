"""`antiphon model`: fetch and list models; runs `python -m model_host` as a process."""

import subprocess
from typing import Annotated

import typer

from antiphon.cli.common import Group, Session, command, without_numerics
from replica.io import python


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(cls=Group, no_args_is_help=True)
    app.add_typer(group, name="model", help="Fetch or list models.", rich_help_panel="Run")

    @command(group, "pull")
    def pull(
        session: Session,
        name: Annotated[
            str | None,
            typer.Argument(metavar="NAME", help="The model; else the one `up` serves."),
        ] = None,
    ) -> int:
        """Fetch a model, check its digest and keep it in the cache folder."""
        return _run(session, "pull", without_numerics(name or session.settings.model))

    @command(group, "list")
    def list_(session: Session) -> int:
        """List the models known by name and those downloaded."""
        return _run(session, "list")


def _run(session: Session, *arguments: str) -> int:
    flags = ["--json"] if session.out.as_json else []
    argv = python("-m", "model_host", *arguments, *flags)
    return subprocess.run(argv, check=False).returncode  # noqa: S603  # our own module
