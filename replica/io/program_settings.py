"""The settings of the programs: the command, the hub and the host.

Not imported with the package: pydantic costs each replica's process 0.1 s.
"""

from pydantic import field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    TomlConfigSettingsSource,
)


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
        """Refuse a bound below zero: nothing would be within it, and a daemon would run with it."""
        if isinstance(value, int | float) and value < 0:
            raise ValueError("this is below 0")
        return value
