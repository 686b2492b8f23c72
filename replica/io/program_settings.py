"""The settings of the programs: the command, the hub and the host; the forms of keys and addresses.

Not imported with the package: pydantic costs each replica's process 0.1 s.
"""

from math import isfinite
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    TomlConfigSettingsSource,
)

from replica.conversation import address_of, addresses_in, endpoint, require_address
from replica.ids import key_from_hex
from replica.io.process import ConfigInvalid, at_home
from replica.refusals import ArgumentInvalid


def _key(text: str) -> str:
    return key_from_hex(text).hex()


def _address(text: str, *, port_min: int = 1) -> str:
    try:
        require_address(text, port_min=port_min)
    except ArgumentInvalid as error:
        raise ValueError(error.detail) from error
    return text


def _listening(text: str) -> str:
    return _address(text, port_min=0)


def _listening_list(text: str) -> str:
    for one in addresses_in(text):
        _listening(one)
    return text


def _endpoint(text: str) -> str:
    if text and address_of(endpoint(text), port_min=0) is None:
        raise ValueError(f"'{text}' is not [host:]port")
    return text


def _named(value: object) -> object:
    """Refuse the empty name, which is the working directory to a Path, and what names no file."""
    if value == "":
        raise ValueError("the folder has no name")
    if "\0" in str(value):
        raise ValueError("the name of a folder has no zero byte")
    return value


def _in_a_home(path: Path) -> Path:
    try:
        at_home(path)
    except ConfigInvalid as error:
        raise ValueError(error.detail) from error
    return path


Folder = Annotated[Path, BeforeValidator(_named), AfterValidator(_in_a_home)]
"""A folder; `~` and `~USER` at its beginning are home folders."""
HexKey = Annotated[str, AfterValidator(_key)]
"""A public key of 64 hex digits."""
PeerAddress = Annotated[str, AfterValidator(_address)]
"""An address to connect to, host:port."""
ListenAddress = Annotated[str, AfterValidator(_listening)]
"""An address to listen on, host:port; port 0 picks a free one."""
ListenAddresses = Annotated[str, AfterValidator(_listening_list)]
"""Several of them, separated by commas."""
EndpointAddress = Annotated[str, AfterValidator(_endpoint)]
"""The address of an endpoint on loopback, [host:]port; empty: none."""


class ProgramSettings(BaseSettings):
    """Settings of a program, in rising precedence: TOML file, environment, flags."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # pydantic's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # pydantic's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: flags, environment, file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @field_validator("*")
    @classmethod
    def _none_is_negative(cls, value: object) -> object:
        """Refuse a bound below zero, or without end, with which a daemon would run."""
        if isinstance(value, float) and not isfinite(value):
            raise ValueError("this is no finite number")
        if isinstance(value, int | float) and value < 0:
            raise ValueError("this is below 0")
        return value
