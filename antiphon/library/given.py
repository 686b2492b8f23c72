"""The arguments of a run, checked before anything is written. Pure."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypedDict

from antiphon.library import events as e
from replica.conversation import call_digest, key_digest, says_nothing
from replica.ids import ID_BYTES, PublicKey
from replica.limits import PARTS_MAX
from replica.log import (
    CallKey,
    LogitBias,
    Message,
    Part,
    Sampling,
    Speaker,
    Text,
    ToolResult,
    read_back,
)
from replica.refusals import ArgumentInvalid, BodyTooLarge

if TYPE_CHECKING:
    from antiphon.library.tools import Tool

Policy = Callable[[e.Answer], "e.Call | Awaitable[e.Call | None] | None"]
"""The program's own decision after an answer: the next call, or None if it is done."""
CALLS_MAX = 32
"""Tool calls in one run, unless it is given: a small model may keep calling tools forever."""


class SamplingOptions(TypedDict, total=False):
    """The fields of Sampling, as keyword arguments of a run."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_window: int
    seed: int
    logit_bias: Sequence[LogitBias]


class RunOptions(SamplingOptions, total=False):
    """The keyword arguments of `run`, which `ask` passes on (DECISIONS D667)."""

    tools: "Sequence[Tool | Callable[..., Any]]"
    key: str | None
    retries: int
    max_tokens: int | None
    policy: Policy | None
    timeout_s: float | None
    calls_max: int


_SAMPLING = tuple(one.name for one in fields(Sampling))
_WHOLE = frozenset({"top_k", "penalty_window", "seed"})
_OPTIONAL = frozenset({"max_tokens", "timeout_s"})


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a run."""

    parts: tuple[Part, ...]
    tools: "Mapping[str, Tool]" = field(default_factory=dict)
    key: str | None = None
    retries: int = 0
    policy: Policy | None = None
    timeout_s: float | None = None
    max_tokens: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    calls_max: int = CALLS_MAX

    def __post_init__(self) -> None:
        """Check what no type checker sees. Raises ArgumentInvalid."""
        if self.key is not None and not check_text(self.key, "key"):
            raise ArgumentInvalid("key is empty")
        _check_number("max_tokens", self.max_tokens, 1, int)
        _check_number("retries", self.retries, 0, int)
        _check_number("calls_max", self.calls_max, 0, int)
        check_timeout(self.timeout_s)
        if self.policy is not None and not callable(self.policy):
            raise ArgumentInvalid(f"policy is {self.policy!r}, and no function")
        _check_fields(self.sampling)

    @property
    def options(self) -> dict[str, Any]:
        """The options of each request."""
        changes = dict(self.sampling)
        if "logit_bias" in changes:  # in the order of ids, as the log has them
            changes["logit_bias"] = tuple(sorted(changes["logit_bias"], key=lambda b: b.token_id))
        return {"output_tokens_max": self.max_tokens, "changes": changes}

    def call_key(self, author: PublicKey, attempt: int) -> CallKey | None:
        """Return the key of a request in the log, None for a run without a key."""
        if self.key is None:
            return None
        return CallKey(key_digest(author, self.key), call_digest(self.parts), attempt)


def parts_of(content: str | Sequence[Part]) -> tuple[Part, ...]:
    """Return a text, or parts, as parts. Raises ArgumentInvalid."""
    if isinstance(content, str):
        content = (Text(check_text(content, "the text")),)
    if not isinstance(content, Iterable):
        raise ArgumentInvalid(f"a message is a text or parts, not {content!r}")
    parts = tuple(_checked(number, one) for number, one in enumerate(content, 1))
    if len(parts) > PARTS_MAX:
        raise ArgumentInvalid(f"the message has {len(parts)} parts, more than {PARTS_MAX}")
    if says_nothing(parts):
        raise ArgumentInvalid("the message is empty")
    return parts


def _checked(number: int, part: object) -> Part:
    """Return a part, which the log gives back as it is. Raises ArgumentInvalid, BodyTooLarge."""
    if not isinstance(part, Part):
        raise ArgumentInvalid(f"a message is a text or parts, and {part!r} is none")
    what = f"part {number} of the message, of {type(part).__name__},"
    if isinstance(part, ToolResult) and isinstance(part.parts, list):
        part = replace(part, parts=tuple(part.parts))
    try:
        found = read_back(Message(Speaker.USER, (part,)))
    except BodyTooLarge:
        raise
    except Exception as error:  # whatever the encoder raises for fields of other types
        raise ArgumentInvalid(f"{what} can't be written: {error}") from error
    if not isinstance(found, Message) or found.parts != (part,):
        raise ArgumentInvalid(f"{what} has a field of another type than it should")
    return part


def check_sampling(sampling: Sampling | None) -> None:
    """Check the types of sampling parameters. Raises ArgumentInvalid."""
    if not isinstance(sampling, Sampling | None):
        raise ArgumentInvalid(f"sampling is {sampling!r}, and no Sampling")
    if sampling is not None:
        _check_fields({name: getattr(sampling, name) for name in _SAMPLING})


def _check_fields(sampling: Mapping[str, Any]) -> None:
    for name, value in sampling.items():
        if name not in _SAMPLING:
            known = ", ".join(_SAMPLING)
            raise ArgumentInvalid(f"there is no option '{name}'; of sampling: {known}")
        if name == "logit_bias":
            _check_biases(value)
        else:
            _check_number(name, value, None, int if name in _WHOLE else int | float)


def _check_biases(value: Any) -> None:
    is_list = isinstance(value, Sequence) and all(isinstance(one, LogitBias) for one in value)
    if not is_list:
        raise ArgumentInvalid(f"logit_bias is {value!r}, and no list of LogitBias")
    for one in value:
        if not isinstance(one.token_id, int) or isinstance(one.token_id, bool):
            raise ArgumentInvalid(f"logit_bias names {one.token_id!r}, and no id of a token")


def _check_number(name: str, value: Any, least: int | None, kind: Any) -> None:
    """Check a number, which may be None where its field may. Raises ArgumentInvalid."""
    if value is None and name in _OPTIONAL:
        return
    if not isinstance(value, kind) or isinstance(value, bool):
        whole = "a whole number" if kind is int else "a number"
        raise ArgumentInvalid(f"{name} is {value!r}, not {whole}")
    if least is not None and not value >= least:
        raise ArgumentInvalid(f"{name} is {value}, not {least} or more")


def check_timeout(timeout_s: float | None) -> float | None:
    """Return a time in seconds, or None for none. Raises ArgumentInvalid."""
    _check_number("timeout_s", timeout_s, 0, int | float)
    try:
        return None if timeout_s is None else float(timeout_s)
    except OverflowError:
        raise ArgumentInvalid("timeout_s is longer than any time") from None


def check_limit(timeout_s: float) -> None:
    """Check a time in seconds of a wait that always has an end. Raises ArgumentInvalid."""
    if check_timeout(timeout_s) is None:
        raise ArgumentInvalid("timeout_s is None, not a number")


def check_system(text: str) -> str:
    """Return the text that begins a conversation. Raises ArgumentInvalid, BodyTooLarge."""
    read_back(Message(Speaker.SYSTEM, (Text(check_text(text, "the system text")),)))
    return text


def check_id(one: bytes, name: str) -> None:
    """Check an id, 32 bytes. Raises ArgumentInvalid."""
    if not isinstance(one, bytes) or len(one) != ID_BYTES:
        step = "; bytes.fromhex reads a text of hex digits" if isinstance(one, str) else ""
        raise ArgumentInvalid(f"{name} is {one!r}, and no id of {ID_BYTES} bytes{step}")


def check_text(text: str, name: str) -> str:
    """Return a text that has bytes. Raises ArgumentInvalid."""
    if not isinstance(text, str):
        raise ArgumentInvalid(f"{name} is {text!r}, and no text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentInvalid(f"{name} has an unpaired surrogate at {error.start}") from error
    return text
