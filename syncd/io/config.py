"""The hub's settings, in rising precedence: TOML file, environment ANTIPHON_HUB_*, flags."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from replica import limits
from replica.io import LogFormat
from replica.io.program_settings import (
    EndpointAddress,
    Folder,
    HexKey,
    ListenAddresses,
    ProgramSettings,
)


class HubConfig(ProgramSettings):
    """Settings of `python -m syncd`."""

    model_config = SettingsConfigDict(
        env_prefix="ANTIPHON_HUB_",
        extra="forbid",
        toml_file="hub.toml",
        use_attribute_docstrings=True,  # they are the help of the flags
    )

    data_dir: Folder = Path("~/.local/share/antiphon/hub")
    """Identity, log store and blobs."""
    listen: ListenAddresses = "127.0.0.1:7411"
    """Addresses to listen on, host:port, separated by commas; port 0 picks a free one. Other
    addresses than loopback use TLS."""
    creators: list[HexKey] = Field(default_factory=list)
    """Hex keys that may create conversations; empty: everyone."""
    host_keys: list[HexKey] = Field(default_factory=list, max_length=limits.HOSTS_MAX)
    """Hex keys of the operator's own model hosts, which the hub vouches for."""
    entries_max: int = Field(limits.ENTRIES_MAX, ge=1)
    """Entries one conversation may hold."""
    links_per_key_max: int = Field(limits.LINKS_PER_KEY_MAX, ge=1)
    """Links one key may hold at a time."""
    conversations_in_memory_max: int = Field(limits.CONVERSATIONS_IN_MEMORY_MAX, ge=1)
    """Conversations held in memory at a time, not counting those in use."""
    logs_bytes_max: int = Field(limits.LOGS_BYTES_MAX, ge=1)
    """Memory for these, in bytes; above it, open ones of the creators that use most are closed."""
    disk_creator_bytes_max: int = Field(limits.DISK_CREATOR_BYTES_MAX, ge=1)
    """Disk for the conversations of one creator and their blobs, in bytes."""
    disk_bytes_max: int = Field(0, ge=0)
    """Disk for all conversations and their blobs, in bytes; 0 for nine tenths of the disk."""
    blob_bytes_max: int = Field(limits.BLOB_BYTES_MAX, ge=1)
    """Maximum size of one blob, in bytes."""
    blobs_bytes_max: int = Field(limits.BLOBS_BYTES_MAX, ge=1)
    """Maximum size of all blobs of one conversation, in bytes."""
    expiring_blobs_bytes_max: int = Field(limits.EXPIRING_BLOBS_BYTES_MAX, ge=1)
    """Maximum bytes of expiring blobs in one conversation. They count towards the disk, and not
    towards --blobs-bytes-max."""
    reflection: bool = False
    """Serve gRPC reflection, for tools such as grpcurl."""
    metrics: EndpointAddress = ""
    """Address of the Prometheus endpoint on loopback, [host:]port; empty: none."""
    log_format: LogFormat = "auto"
    """Form of the log on stderr: console or json; auto is console on a terminal, else json."""
