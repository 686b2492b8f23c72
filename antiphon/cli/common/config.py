"""The user's settings: TOML file < environment ANTIPHON_* < flags.

The hub of a folder that joined is the one where it joined, unless a flag names another.
"""

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, PrivateAttr
from pydantic_settings import SettingsConfigDict

from antiphon.cli.common.errors import FileUnusable
from antiphon.daemons import HOST_MODULE
from replica.conversation import require_address
from replica.ids import PublicKey, key_from_hex
from replica.io import ConfigInvalid, at_home, make_settings, saved_hub
from replica.io.program_settings import Folder, HexKey, PeerAddress, ProgramSettings
from replica.refusals import ArgumentInvalid

Numerics = Literal["auto", "q4", "bf16", "fp32"]
DEFAULT_ROOT = Path("~/.local/share/antiphon")
_FLAGS = {"hub": "--hub-address"}
"""Flags whose name differs from the setting's."""


class Settings(ProgramSettings):
    """Settings of the `antiphon` command."""

    model_config = SettingsConfigDict(env_prefix="ANTIPHON_", extra="forbid")

    data_dir: Folder = DEFAULT_ROOT / "replica"
    """Key, log store and blobs of this replica."""
    hub: PeerAddress = "127.0.0.1:7411"
    """The hub to sync with, host:port."""
    host: HexKey | None = None
    """Hex key of the model host to grant new conversations to; else one the hub vouches for."""
    services_dir: Folder = Field(DEFAULT_ROOT, validate_default=False)
    """Folder of the hub's and the host's data under `antiphon up`."""
    model: str = "SmolLM2-135M-Instruct"
    """The model that `antiphon up` serves: a name, or the path of a GGUF or model folder; add @q4,
    @bf16 or @fp32 to set its numerics."""
    numerics: Numerics = "auto"
    """Number formats of the computation: q4, bf16, fp32, or auto; see spec/07-host §7."""
    host_module: str = HOST_MODULE
    """Python module that `antiphon up` runs as the model host."""
    sync_timeout_s: float = 5.0
    """Seconds a command waits for the hub before it continues offline."""
    _config_file: Path | None = PrivateAttr(None)

    @property
    def config_file(self) -> Path | None:
        """The settings file that `--config` named."""
        return self._config_file

    @property
    def host_key(self) -> PublicKey | None:
        """The pinned model host's key."""
        return key_from_hex(self.host) if self.host is not None else None

    @property
    def hub_port(self) -> int:
        """The port of `hub`."""
        return require_address(self.hub).port

    @property
    def store_path(self) -> Path:
        """The log store."""
        return self.data_dir.expanduser() / "log" / "log.db"

    @property
    def key_path(self) -> Path:
        """The identity's key file."""
        return self.data_dir.expanduser() / "identity.key"

    @property
    def blobs_path(self) -> Path:
        """The blobs' folder."""
        return self.data_dir.expanduser() / "blobs"


def named_config_file() -> Path | None:
    """Return the settings file that the environment names."""
    named = os.environ.get("ANTIPHON_CONFIG")
    return Path(named) if named else None


def default_config_file() -> Path:
    """Return the path of the settings file where none is named; it need not exist."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base) / "antiphon" / "config.toml"


@lru_cache(maxsize=4)  # a class takes as long to make as its settings to read
def _reading(path: Path) -> type[Settings]:
    """Return the settings of a file, which is read when they are made."""

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    return FromFile


def load_settings(flags: dict[str, Any], config_file: Path | None = None) -> Settings:
    """Read the settings; `flags` that are None were not given. Raises ConfigInvalid."""
    named = config_file or named_config_file()
    path = at_home(named or default_config_file())
    if named is not None and not (path.exists() or path.is_symlink()):
        raise ConfigInvalid(f"{path} does not exist")
    given = {name: value for name, value in flags.items() if value is not None}
    settings = make_settings(_reading(path), given, file=path, flags=_FLAGS)
    settings._config_file = path.absolute() if config_file is not None else None
    if "hub" in given:
        return settings
    try:
        joined = saved_hub(settings.data_dir.expanduser())
    except ArgumentInvalid as error:
        raise ConfigInvalid(error.detail) from error
    return settings if joined is None else settings.model_copy(update={"hub": joined})


def without_numerics(model: str) -> str:
    """Return a model's name or path without the numerics stated behind it."""
    name, _, behind = model.rpartition("@")
    return name if name and behind in get_args(Numerics) else model


def folder_of(text: str, name: str) -> Path:
    """Return the path of a folder. Raises ConfigInvalid for the empty text."""
    if not text:
        raise ConfigInvalid(f"{name}: the folder has no name")
    return Path(text)


def require_folder(path: Path) -> None:
    """Refuse what is no folder and has no room for one. Raises FileUnusable, OSError."""
    path = path.expanduser()
    existing = next((one for one in (path, *path.parents) if one.exists()), None)
    if existing is not None and not existing.is_dir():
        raise FileUnusable(f"{existing}: not a folder")
