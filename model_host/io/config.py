"""The host's settings, in rising precedence: TOML file, environment ANTIPHON_HOST_*, flags."""

import json
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from model_host.engine import compute_threads
from model_host.model_config import CONTEXT_TOKENS_MIN
from replica import limits
from replica.io import LogFormat
from replica.io.program_settings import (
    EndpointAddress,
    Folder,
    HexKey,
    ListenAddress,
    PeerAddress,
    ProgramSettings,
)

GIB = 1024**3
Numerics = Literal["auto", "q4", "bf16", "fp32"]


class HostConfig(ProgramSettings):
    """Settings of `python -m model_host serve`."""

    model_config = SettingsConfigDict(
        env_prefix="ANTIPHON_HOST_",
        extra="forbid",
        toml_file="host.toml",
        use_attribute_docstrings=True,  # they are the help of the flags
    )

    data_dir: Folder = Path("~/.local/share/antiphon/host")
    """Keys, log store, journals; checkpoints under derived/."""
    key_ring: Folder | None = None
    """Folder of the three secrets that hosts share to exchange checkpoints: salt.secret,
    checkpoint.secret and archive.secret; default: the data folder."""
    hub: PeerAddress = "127.0.0.1:7411"
    """The hub to serve, host:port."""
    hub_key: HexKey | Literal[""] = ""
    """Hex key that the hub must prove, in place of the one pinned; required off loopback unless
    one is pinned or an invitation states it."""
    listen: ListenAddress = "127.0.0.1:0"
    """Address of HostService, host:port, on loopback; port 0 picks a free one."""
    model: Annotated[tuple[str, ...], NoDecode, Field(min_length=1)] = ("SmolLM2-135M-Instruct",)
    """A model's name, or the path of a GGUF file or Hugging Face folder. Several are offered as
    profiles, the first as the default; add @q4, @bf16 or @fp32 to one to set its numerics."""
    numerics: Numerics = "auto"
    """Number formats of the computation; q4 needs a model with four-bit weights. auto uses
    q4 if the model and the CPU support it, else bf16, else fp32."""
    context_tokens: int = 0
    """Tokens of a context, up to the model's limit; 0 for that limit, and at most 8,192. Fewer
    shorten the self-test at start."""
    threads: int = Field(0, le=compute_threads.THREADS_MAX)
    """Threads of the computation, at most four per CPU, because more threads than CPUs wait for
    each other; with 0, torch chooses."""
    kv_bytes_max: int = 2 * GIB
    """Memory for keys and values of all conversations, for each loaded profile."""
    memory_bytes_max: int = 8 * GIB
    """Memory of all loaded profiles: weights, and kv_bytes_max for each."""
    weights_cache_bytes_max: int = 16 * GIB
    """Disk for converted weights in the cache folder."""
    checkpoint_bytes_max: int = 8 * GIB
    """Disk for checkpoints of all conversations."""
    hub_checkpoint_bytes_max: int = 0
    """Bytes of checkpoints kept at the hub, encrypted with the key ring; 0 for none."""
    hub_checkpoint_idle_s: float = Field(60.0, ge=0)
    """Time without a new answer after which a conversation's checkpoint is uploaded."""
    hub_checkpoint_lifetime_s: float = Field(7 * 86_400.0, gt=0)
    """Time after which the hub deletes an uploaded checkpoint."""
    hub_checkpoint_tokens_min: int = Field(512, ge=1)
    """Shorter checkpoints are not uploaded."""
    owner_keys: list[HexKey] = Field(default_factory=list)
    """Hex keys whose conversations are served, those that they created; empty: everyone's."""
    invitations: list[str] = Field(default_factory=list, json_schema_extra={"metavar": "CODE"})
    """Codes of `antiphon invite --role host`: the host joins these conversations, and serves them
    regardless of who created them."""
    open_per_owner_max: int = Field(limits.HOST_OPEN_PER_OWNER_MAX, ge=1)
    """Conversations of one creator that are open at a time; one more takes an idle one's place."""
    open_max: int = Field(limits.HOST_OPEN_MAX, ge=1, le=limits.CONVERSATIONS_PER_LINK_MAX)
    """Conversations that are open at a time."""
    open_unasked_max: int = Field(limits.HOST_OPEN_UNASKED_MAX, ge=0)
    """Open conversations up to which a listed one is opened before anybody asks in it."""
    open_idle_s: float = Field(limits.HOST_OPEN_IDLE_S, gt=0)
    """Time without an entry after which a conversation is closed until somebody asks in it."""
    operator_keys: list[HexKey] = Field(default_factory=list)
    """Hex keys that may see all running requests, besides the host's own."""
    metrics: EndpointAddress = ""
    """Address of the Prometheus endpoint on loopback, [host:]port; empty: none."""
    log_format: LogFormat = "auto"
    """Form of the log on stderr: console or json; auto is console on a terminal, else json."""

    @field_validator("model", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        """Accept one name, or several as a list; in the environment a list is JSON."""
        if isinstance(value, str):
            if not value.startswith("["):
                return (value,)
            try:
                return json.loads(value)
            except ValueError as error:
                raise ValueError(f"'{value}' is no list in JSON: {error}") from error
        return value

    @field_validator("model")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse what `Offers` would, before a model is loaded."""
        if len(value) > limits.HOST_PROFILES_MAX:
            most = limits.HOST_PROFILES_MAX
            raise ValueError(f"{len(value)} models; a host offers {most} at most")
        twice = next((one for one in value if value.count(one) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice} is given twice")
        return value

    @field_validator("context_tokens")
    @classmethod
    def _has_room(cls, value: int) -> int:
        """Refuse what the engine would: a context without room for a token of the answer."""
        if 0 < value < CONTEXT_TOKENS_MIN:
            raise ValueError(f"a context has {CONTEXT_TOKENS_MIN} tokens at least, or 0")
        return value

    @property
    def models(self) -> tuple[tuple[str, Numerics], ...]:
        """The name or path of each model, and its numerics."""
        found = []
        known = {numerics: numerics for numerics in get_args(Numerics)}
        for text in self.model:
            name, _, behind = text.rpartition("@")
            is_stated = bool(name) and behind in known
            found.append((name, known[behind]) if is_stated else (text, self.numerics))
        return tuple(found)
