"""The host's settings, in rising precedence: TOML file, environment ANTIPHON_HOST_*, flags."""

from pathlib import Path
from typing import Literal

from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

GIB = 1024**3


class HostConfig(BaseSettings):
    """Settings of `python -m model_host serve`."""

    model_config = SettingsConfigDict(
        env_prefix="ANTIPHON_HOST_", extra="forbid", toml_file="host.toml"
    )

    data_dir: Path = Path("~/.local/share/antiphon/host")
    """Keys, log store, journals; checkpoints under derived/."""
    hub: str = "127.0.0.1:7411"
    """The hub to serve, host:port."""
    listen: str = "127.0.0.1:0"
    """Address of HostService, host:port; port 0 picks a free one."""
    model: str = "SmolLM2-135M-Instruct"
    """A model's name, or the path of a GGUF file or Hugging Face folder."""
    numerics: Literal["q4", "bf16", "fp32"] = "bf16"
    """Number formats of the computation; q4 needs a model with weights of four bits."""
    context_tokens: int = 0
    """Tokens of a context; 0 for the model's limit. Fewer shorten the start-up self-test."""
    threads: int = 0
    """Threads of the computation; 0 for torch's choice."""
    kv_bytes_max: int = 2 * GIB
    """KV memory of all conversations."""
    checkpoint_bytes_max: int = 8 * GIB
    """Disk for checkpoints of all conversations."""

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
