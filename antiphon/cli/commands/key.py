"""`antiphon key`: this replica's identity, shown, backed up, restored."""

import getpass
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from antiphon.cli.common import (
    FileExists,
    Group,
    NotReplaced,
    Session,
    command,
    new_file,
    read_file,
)
from replica.io import keys, own_key_of
from replica.log import public_key
from replica.refusals import ArgumentInvalid, KeyFileInvalid

PASSPHRASE_VARIABLE = "ANTIPHON_PASSPHRASE"  # noqa: S105  # the name of a variable
_BACKUP_BYTES_MAX = 16 * 1024


class NoKeyYet(KeyFileInvalid):
    """The folder has no key yet, so there is none to back up."""

    next_step = (
        "Give the folder of your replica as `--data-dir`; `antiphon key show` creates a key in it."
    )


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(cls=Group, no_args_is_help=True)
    app.add_typer(
        group, name="key", help="Show, back up or restore your key.", rich_help_panel="Keep"
    )

    @command(group, "show")
    def show(session: Session) -> None:
        """Print your public key, which an owner can grant a role."""
        path = session.settings.key_path
        existed = path.exists()
        public = public_key(session.key()).hex()
        if session.out.as_json:
            session.out.emit({"key": public, "file": str(path)})
            return
        session.out.show(public)
        made = "created just now: " if not existed else ""
        session.out.note(Text(f"{made}{path}", style="dim"))

    @command(group, "backup")
    def backup(
        session: Session,
        file: Annotated[
            Path, typer.Argument(metavar="FILE", help="The file for the encrypted key.")
        ],
    ) -> None:
        """Write your key into a file, encrypted with a passphrase.

        The passphrase is asked for on the terminal, or taken from the variable
        ANTIPHON_PASSPHRASE.
        """
        path = session.settings.key_path
        keys.require_not_gone(path, session.settings.store_path)
        if not path.exists():
            raise NoKeyYet(f"{path} does not exist")
        pem = keys.backup(path, _passphrase(confirm=True))
        _write_new(file, pem)
        _report(session, file, "backed up to")

    @command(group, "restore")
    async def restore(
        session: Session, file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]
    ) -> None:
        """Restore a backed-up key; an existing key is never replaced.

        If the folder has a log, the backup must contain the key that wrote it. The passphrase
        is asked for on the terminal, or taken from the variable ANTIPHON_PASSPHRASE.
        """
        owner = await own_key_of(session.settings.store_path)
        text = read_file(file, _BACKUP_BYTES_MAX)
        keys.restore(session.settings.key_path, text, _passphrase(confirm=False), owner=owner)
        _report(session, session.settings.key_path, "restored to")


def _report(session: Session, file: Path, done: str) -> None:
    public = public_key(session.key()).hex()
    if session.out.as_json:
        session.out.emit({"key": public, "file": str(file)})
    else:
        session.out.show(f"{public[:12]} {done} {file}")


def _passphrase(*, confirm: bool) -> str:
    given = os.environ.get(PASSPHRASE_VARIABLE)
    if given is not None:
        return given
    if not os.isatty(0):
        raise ArgumentInvalid(f"no terminal to ask for a passphrase; set {PASSPHRASE_VARIABLE}")
    first = getpass.getpass("Passphrase: ")
    if confirm and getpass.getpass("Again: ") != first:
        raise ArgumentInvalid("the two passphrases differ; nothing was written")
    return first


def _write_new(file: Path, content: bytes) -> None:
    """Write a private file that must not exist yet. Raises FileUnusable."""
    try:
        with new_file(file, force=False) as stream:
            stream.write(content)
    except FileExists as error:
        raise NotReplaced(error.detail) from error
