"""Messages of a link, events for the application, and Effects (spec/04-link).

The vocabulary between the pure core and its drivers: everything is frozen.
"""

from dataclasses import dataclass, field
from enum import Enum

from replica.entry import Entry
from replica.errors import AntiphonError, EntryRefused
from replica.ids import ID_BYTES, ConversationId, Digest, EntryId, Position, PublicKey
from replica.limits import METADATA_BYTES_MAX

FAULT_IDS_MAX = METADATA_BYTES_MAX // (2 * ID_BYTES)
"""Missing ids one Fault names: it waits in queues as it is, so it is cut when it is made."""


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """What a host offers, in short."""

    digest: Digest
    name: str
    context_tokens_max: int


@dataclass(frozen=True, slots=True)
class HostInfo:
    """What a model host says of itself; an empty address means it serves no questions."""

    key: PublicKey
    address: str
    profiles: tuple[ProfileInfo, ...]


@dataclass(frozen=True, slots=True)
class LinkedHost:
    """A model host that is linked, and whether the hub vouches for it."""

    info: HostInfo
    vouched: bool = False
    """Advice for a grant that is made now: never stored or passed on."""

    @property
    def key(self) -> PublicKey:
        """The key it authenticated with."""
        return self.info.key


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of a client."""

    versions: tuple[int, ...]
    features: tuple[str, ...] = ()
    follow: bool = False
    host: HostInfo | None = None


@dataclass(frozen=True, slots=True)
class Welcome:
    """First message of a hub."""

    version: int
    hub_key: PublicKey
    frame_bytes_max: int
    credit_bytes: int
    idle_timeout_ms: int
    features: tuple[str, ...] = ()
    hosts: tuple[LinkedHost, ...] = ()


@dataclass(frozen=True, slots=True)
class Open:
    """Start or re-check one conversation; `heads` None means digest only."""

    conversation: ConversationId
    digest: Digest
    heads: tuple[Position, ...] | None = None
    drafts: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """Answer to Open; `heads` None says only whether the digests are equal."""

    conversation: ConversationId
    digest: Digest
    equal: bool
    heads: tuple[Position, ...] | None = None


@dataclass(frozen=True, slots=True)
class Entries:
    """Some entries of one conversation, in send order.

    `refused` holds what the decoder set aside: id and the rule it breaks.
    """

    conversation: ConversationId
    entries: tuple[Entry, ...]
    refused: tuple[tuple[EntryId, EntryRefused], ...] = ()

    @property
    def ids(self) -> tuple[EntryId, ...]:
        """The ids of all that came, refused or not."""
        return (*(e.id for e in self.entries), *(i for i, _ in self.refused))


@dataclass(frozen=True, slots=True)
class Ids:
    """All ids held of one conversation, in chunks."""

    conversation: ConversationId
    ids: tuple[EntryId, ...]
    more: bool = False
    answer: bool = False


@dataclass(frozen=True, slots=True)
class Ack:
    """These entries are durable, and what precedes each in its lane."""

    conversation: ConversationId
    ids: tuple[EntryId, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a host is before its first token, in tokens."""

    prompt_tokens: int
    cached_tokens: int
    restored_tokens: int
    prefilled_tokens: int


@dataclass(frozen=True, slots=True)
class Draft:
    """Streamed output that is not yet in the log."""

    conversation: ConversationId
    request: EntryId
    run: int
    token_offset: int
    token_ids: tuple[int, ...]
    byte_offset: int
    data: bytes
    digest: Digest
    signature: bytes = b""
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Credit:
    """Bytes of counted frames the peer may have sent in all on this link."""

    limit_bytes: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A typed refusal; `conversation` None concerns the link."""

    reason: str
    detail: str = ""
    next_step: str = ""
    retryable: bool = False
    conversation: ConversationId | None = None
    entry: EntryId | None = None
    missing: tuple[EntryId, ...] = ()
    retry_after_ms: int = 0

    @classmethod
    def of(
        cls,
        error: AntiphonError,
        conversation: ConversationId | None = None,
        entry: EntryId | None = None,
    ) -> "Fault":
        """Put an error into words for the peer; of very many missing ids, the first."""
        return cls(
            error.reason,
            error.detail,
            error.next_step,
            error.retryable,
            conversation,
            entry,
            tuple(EntryId(m) for m in error.missing[:FAULT_IDS_MAX]),
            int((error.retry_after_s or 0) * 1000),
        )


@dataclass(frozen=True, slots=True)
class Close:
    """The end of a conversation on this link, or (None) of the link."""

    conversation: ConversationId | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Ping:
    """A beat, with the bytes of counted frames sent so far."""

    nonce: int
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to a beat: counted bytes the answerer has sent so far, and takes in all."""

    nonce: int
    sent_bytes: int = 0
    limit_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ListingItem:
    """One conversation the client is a member of."""

    conversation: ConversationId
    digest: Digest


@dataclass(frozen=True, slots=True)
class Listing:
    """Conversations new since the last Listing of this link."""

    items: tuple[ListingItem, ...]


Message = (
    Hello
    | Welcome
    | Open
    | Opened
    | Entries
    | Ids
    | Ack
    | Draft
    | Credit
    | Fault
    | Close
    | Ping
    | Pong
    | Listing
)


class SyncState(Enum):
    """What a replica believes of a conversation and its hub."""

    OFFLINE = "offline"
    OPENING = "opening"
    RECONCILING = "reconciling"
    SYNCHRONIZED = "synchronized"
    DESYNCHRONIZED = "desynchronized"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class EntriesAdmitted:
    """Entries that are new in a log, ancestors first."""

    conversation: ConversationId
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class EntriesAcked:
    """The hub holds these (and their lane ancestors) durably."""

    conversation: ConversationId
    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class EntryFailed:
    """An entry from the peer was refused, or the peer refused one of ours."""

    conversation: ConversationId
    entry: EntryId | None
    fault: Fault


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The belief about a conversation changed."""

    conversation: ConversationId
    state: SyncState


@dataclass(frozen=True, slots=True)
class DraftReceived:
    """Streamed output arrived, checked against its host's key."""

    draft: Draft


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The link is up."""

    welcome: Welcome


@dataclass(frozen=True, slots=True)
class Listed:
    """The hub named conversations we are a member of."""

    items: tuple[ListingItem, ...]


@dataclass(frozen=True, slots=True)
class LinkClosed:
    """The link ended; the driver closes the stream."""

    fault: Fault | None = None


Event = (
    EntriesAdmitted
    | EntriesAcked
    | EntryFailed
    | StateChanged
    | DraftReceived
    | Welcomed
    | Listed
    | LinkClosed
)


def conversation_of(shown: Message | Event) -> ConversationId | None:
    """Return the conversation a message or an event is about; None for the link's own."""
    about = shown.draft if isinstance(shown, DraftReceived) else shown
    conversation: ConversationId | None = getattr(about, "conversation", None)
    return conversation


@dataclass(frozen=True, slots=True)
class Effects:
    """What the driver does now, in this order."""

    persist: tuple[Entry, ...] = ()
    """Durable BEFORE anything in `send` leaves; on failure nothing below happens."""
    send: tuple[Message, ...] = ()
    """In order, on this link."""
    deliver: tuple[Event, ...] = ()
    """For the application, after `persist`."""
    wake_at: float | None = None
    """Call handle_deadline then: seconds on the caller's monotonic clock."""


@dataclass(slots=True)
class EffectsBuilder:
    """Collects effects while one input is handled."""

    persist: list[Entry] = field(default_factory=list)
    send: list[Message] = field(default_factory=list)
    deliver: list[Event] = field(default_factory=list)

    def build(self, wake_at: float | None) -> Effects:
        """Freeze what was collected."""
        return Effects(tuple(self.persist), tuple(self.send), tuple(self.deliver), wake_at)
