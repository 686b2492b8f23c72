"""The hub's settings, in rising precedence: TOML file, environment ANTIPHON_HUB_*, flags."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from replica import limits


class HubConfig(BaseSettings):
    """Settings of `python -m syncd`."""

    model_config = SettingsConfigDict(
        env_prefix="ANTIPHON_HUB_",
        extra="forbid",
        toml_file="hub.toml",
        use_attribute_docstrings=True,  # they are the help of the flags
    )

    data_dir: Path = Path("~/.local/share/antiphon/hub")
    """Identity, log store and blobs."""
    listen: str = "127.0.0.1:7411"
    """Address to listen on, host:port; port 0 picks a free one."""
    creators: list[str] = Field(default_factory=list)
    """Hex keys that may create conversations; empty: everyone."""
    host_keys: list[str] = Field(default_factory=list)
    """Hex keys of the operator's own model hosts, which the hub vouches for."""
    entries_max: int = 1_000_000
    """Entries one conversation may hold."""
    links_per_key_max: int = 64
    """Links one key may hold at a time."""
    conversations_in_memory_max: int = Field(1_000, ge=1)
    """Conversations held in memory at a time, but for those in use."""
    blob_bytes_max: int = limits.BLOB_BYTES_MAX
    """Size of one blob, in bytes."""
    blobs_bytes_max: int = limits.BLOBS_BYTES_MAX
    """Size of all blobs of one conversation, in bytes."""
    reflection: bool = False
    """Serve gRPC reflection."""

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
