"""A command line printed for the user, to be copied into a shell."""

import shlex
from pathlib import Path
from typing import Any

from antiphon.cli.common.config import Settings, load_settings
from replica.io import ConfigInvalid


def next_command(settings: Settings, *words: str, hub: str | None = None) -> str:
    """Return `antiphon` with these words, as a shell reads them.

    The options are added without which that command would use another folder than these
    settings, or another hub than `hub`; None is the hub of the settings. The folder is absolute,
    since the command may be run in another one.
    """
    file, hub = settings.config_file, settings.hub if hub is None else hub
    before = [] if file is None else ["--config", str(file)]
    flags: dict[str, Any] = {}
    options: list[str] = []
    folder = settings.data_dir.expanduser().absolute()
    found = _settings(flags, file)
    # A relative folder, as of a variable or a file, is another one elsewhere.
    if found is None or found.data_dir.expanduser() != folder:
        options += ["--data-dir", str(folder)]
        flags["data_dir"] = folder
        found = _settings(flags, file)
    if found is None or found.hub != hub:
        options += ["--hub-address", hub]
    return shlex.join(["antiphon", *before, *words, *options])


def _settings(flags: dict[str, Any], file: Path | None) -> Settings | None:
    """Return the settings of a command with these flags; None if they are refused."""
    try:
        return load_settings(flags, file)
    except ConfigInvalid:
        return None
