"""Bodies and parts of entries, one frozen dataclass each (spec/02-entry §5)."""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from replica.ids import Digest, EntryId, PublicKey


class Role(IntEnum):
    """The role of a member."""

    READER = 1
    WRITER = 2
    OWNER = 3
    HOST = 4


class Speaker(IntEnum):
    """The role of a message in the model's template."""

    SYSTEM = 1
    USER = 2
    ASSISTANT = 3
    TOOL = 4


class FinishReason(IntEnum):
    """Why a generation ended."""

    UNSPECIFIED = 0  # also where a reader does not know the reason
    STOP = 1
    LENGTH = 2
    TOOL_CALLS = 3
    CONTENT_FILTER = 4
    CANCELLED = 5
    INTERRUPTED = 6
    CONTEXT_LIMIT = 7
    REFUSED = 8


CONTINUABLE = frozenset({FinishReason.LENGTH, FinishReason.CANCELLED, FinishReason.INTERRUPTED})
"""Finish reasons after which a request may continue the same assistant turn."""


class ToolChoice(IntEnum):
    """Whether an answer calls tools."""

    AUTO = 0
    NONE = 1
    REQUIRED = 2
    NAMED = 3


class FormatKind(StrEnum):
    """The language of a response format; the value is its field of a REQUEST."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"


class Purpose(IntEnum):
    """The purpose of an opaque part."""

    UNSPECIFIED = 0
    REASONING = 1
    INSTRUCTIONS = 2
    TOOL_STATE = 3
    SEARCH_RESULT = 4
    SAFETY = 5
    CHECKPOINT = 6


class Need(IntEnum):
    """The treatment of an opaque part that a host can't pass to its model."""

    UNSPECIFIED = 0
    REQUIRED = 1
    PREFERRED = 2
    DROPPABLE = 3


class Outcome(IntEnum):
    """The host's treatment of an opaque part, or of a result that does not count."""

    INCLUDED = 1
    DEGRADED = 2
    DROPPED = 3


@dataclass(frozen=True, slots=True)
class LogitBias:
    """A number added to the logit of one token."""

    token_id: int
    bias: float


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen; temperature 0 is greedy.

    >>> me.conversation("warm", sampling=antiphon.Sampling(temperature=0.7, top_k=20)).title()
    'warm'
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 0.0
    min_p: float = 0.0
    repetition_penalty: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 0
    seed: int = 0
    logit_bias: tuple[LogitBias, ...] = ()  # by ascending id


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text, never parsed for control tokens."""

    text: str


@dataclass(frozen=True, slots=True)
class Media:
    """A file beside the log."""

    digest: Digest
    size_bytes: int
    media_type: str
    width_pixels: int = 0
    height_pixels: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that the model asks for."""

    call_id: str
    name: str
    arguments_json: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """The executor is about to run a tool that has an effect."""

    call_id: str
    effect_key: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool; it closes the obligation of the call."""

    call_id: str
    parts: tuple["Part", ...]
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Tokens:
    """Exact token ids of a known tokenizer."""

    token_ids: tuple[int, ...]
    tokenizer_digest: Digest


@dataclass(frozen=True, slots=True)
class Opaque:
    """A provider's bytes, carried verbatim; exactly one of `data` and `blob` is set."""

    issuer: str
    scope: str = ""
    key_id: str = ""
    dialect: str = ""
    purpose: int = Purpose.UNSPECIFIED
    need: int = Need.UNSPECIFIED
    tokens: int = 0
    expire_time_ms: int = 0
    fallback_text: str = ""
    data: bytes | None = None
    blob: Digest | None = None


Part = Text | Media | ToolCall | ToolStarted | ToolResult | Tokens | Opaque


@dataclass(frozen=True, slots=True)
class Genesis:
    """Owners in order of seniority, proposals for requests (0 for none), consent to sharing."""

    owners: tuple[PublicKey, ...]
    default_sampling: Sampling | None = None
    default_output_tokens_max: int = 0
    default_stop: tuple[str, ...] = ()
    shares_pages: bool = False
    """One such conversation of the first owner may show by its speed what others hold."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Give `key` a role."""

    key: PublicKey
    role: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The last valid entry of one lane of a revoked key."""

    epoch: int
    track: int
    seq: int
    id: EntryId


@dataclass(frozen=True, slots=True)
class Revocation:
    """Revoke all roles of `key` for good; lanes without a cut are void."""

    key: PublicKey
    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """One change of the membership."""

    change: Grant | Revocation


@dataclass(frozen=True, slots=True)
class CallKey:
    """The idempotency key under which an author made a call (spec/02-entry §6)."""

    key: Digest
    """Digest of the author and the text of the key."""
    call: Digest
    """Digest of the message's parts: another call under the key is refused by its author."""
    attempt: int = 0
    """Number of the try, from 0."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a person, a model or a tool."""

    speaker: int
    parts: tuple[Part, ...]
    key: CallKey | None = None
    label: str = ""
    """The program that wrote it for its author, in its own words; empty for none."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """One function the model may call; `parameters_json` is a JSON Schema."""

    name: str
    description: str
    parameters_json: str


@dataclass(frozen=True, slots=True)
class Tools:
    """Definitions in the order the model sees them."""

    tools: tuple[ToolDefinition, ...]


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The form that an answer must have."""

    kind: FormatKind
    text: str


@dataclass(frozen=True, slots=True)
class Request:
    """A request that the model continues the conversation."""

    host: PublicKey
    sampling: Sampling
    profile: Digest | None = None
    output_tokens_max: int = 0
    stop: tuple[str, ...] = ()
    executor: PublicKey | None = None
    membership_heads: tuple[EntryId, ...] = ()
    answer_by_ms: int = 0
    """Unix milliseconds after which the host no longer begins; 0 for no limit."""
    output_tokens_min: int = 0
    """Output index before which neither a token nor a string ends the answer."""
    stop_tokens: tuple[int, ...] = ()
    """Tokens that end the answer, besides the model's own; by ascending id."""
    logprobs: int = 0
    """How many of the likeliest tokens the generation records at each output token."""
    response_format: ResponseFormat | None = None
    tool_choice: int = ToolChoice.AUTO
    tool_name: str = ""
    key: CallKey | None = None


@dataclass(frozen=True, slots=True)
class Projected:
    """The outcome for one part that is not in a context as it is."""

    entry: EntryId
    part_index: int
    outcome: int


@dataclass(frozen=True, slots=True)
class Seal:
    """A host's statement of which entries, in which order, form the context so far."""

    request: EntryId
    prev_seal: EntryId | None
    entries: tuple[EntryId, ...]
    profile: Digest
    context_digest: Digest
    render_digest: Digest
    tokens_per_entry: tuple[int, ...]
    membership_heads: tuple[EntryId, ...]
    projections: tuple[Projected, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of a generation; prompt = cached + restored + prefilled, in tokens.

    >>> assert trip.ask("Capital of France?").usage.output_tokens == 1
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    restored_tokens: int = 0
    prefilled_tokens: int = 0
    output_tokens: int = 0
    first_token_us: int = 0
    decode_us: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log probabilities at one output token: its own, and those of the likeliest, likeliest first.

    They are numbers of float32.
    """

    logprob: float
    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Generation:
    """A model's output: all token ids that enter the context, and the parts shown to people."""

    token_ids: tuple[int, ...]
    parts: tuple[Part, ...]
    visible_bytes: int
    finish_reason: int
    finish_detail: str = ""
    usage: Usage = field(default_factory=Usage)
    sampler_digest: Digest | None = None
    render_recipe_digest: Digest | None = None
    draft_digest: Digest | None = None
    numerics_class: Digest | None = None
    run: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One for each token, or none."""
    grammar_engine: str = ""
    grammar_digest: Digest | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """A request that another request is not answered, or not any further."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class DocumentUpdate:
    """One Yjs v1 update of the shared document."""

    update: bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An archive of derived state in the hub's blob store (spec/08-checkpoint §9)."""

    namespace: Digest
    lineage: Digest
    """Lineage key at all tokens."""
    tokens: int
    blob: Digest
    """SHA-256 of the archive."""
    size_bytes: int
    expire_time_ms: int = 0
    """Unix time after which the hub may have deleted the archive; 0 for never."""


@dataclass(frozen=True, slots=True)
class Join:
    """An entry that joins heads, where there are more than one entry may have parents."""


Body = (
    Genesis | Member | Message | Tools | Request | Seal | Generation | Cancel | Checkpoint
    | DocumentUpdate | Join
)  # fmt: skip


def listed_ids(body: Body | None) -> tuple[EntryId, ...]:
    """Return the ids that a control body lists.

    They are ancestors like prev and parents: all must be admitted before the entry,
    and its lamport exceeds theirs.
    """
    match body:
        case Seal():
            prev = (body.prev_seal,) if body.prev_seal is not None else ()
            return (body.request, *prev, *body.entries, *body.membership_heads)
        case Member(Revocation(cuts=cuts)):
            return tuple(cut.id for cut in cuts)
        case _:
            return ()


def text_of(parts: tuple[Part, ...]) -> str:
    """Return the readable text of `parts`, opaque parts by their fallback."""
    pieces = []
    for part in parts:
        match part:
            case Text(text):
                pieces.append(text)
            case Opaque():
                pieces.append(part.fallback_text)
            case ToolResult():
                pieces.append(text_of(part.parts))
            case _:
                pass
    return "".join(pieces)
