"""The messages of a link, all frozen (spec/04-link).

A draft is a message too; it is defined with its rules in replica/conversation/drafts.py.
"""

from dataclasses import dataclass
from typing import Self

from replica.conversation import Draft
from replica.errors import AntiphonError, EntryRefused
from replica.ids import ID_BYTES, ConversationId, Digest, EntryId, Position, PublicKey
from replica.limits import METADATA_BYTES_MAX
from replica.log import Entry, Sampling

FAULT_IDS_MAX = METADATA_BYTES_MAX // (2 * ID_BYTES)
"""Most missing ids one Fault names; the list is cut at creation, because faults are queued."""


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """The short form of a host's profile."""

    digest: Digest
    name: str
    context_tokens_max: int
    sampling: Sampling | None = None
    """The sampling that is recommended for it; a request states its own."""
    numerics: str = ""
    """The number formats of its computation; empty where the host does not say."""


@dataclass(frozen=True, slots=True)
class HostInfo:
    """A model host's description of itself; an empty address means it has no HostService."""

    key: PublicKey
    address: str
    profiles: tuple[ProfileInfo, ...]

    @property
    def has_service(self) -> bool:
        """Say whether it answers questions: counts, replays, pages."""
        return bool(self.address)


@dataclass(frozen=True, slots=True)
class LinkedHost:
    """A model host that is linked, and whether the hub vouches for it."""

    info: HostInfo
    vouched: bool = False
    """For a grant made now; never stored or passed on."""

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


class EncodedHeads(tuple[Position, ...]):
    """Heads with their bytes in a frame, which were encoded in steps before (LINK-92)."""

    data: bytes

    def __new__(cls, heads: tuple[Position, ...], data: bytes) -> Self:
        """Keep `data`, the bytes of `heads` as a field of Open and Opened."""
        encoded = super().__new__(cls, heads)
        encoded.data = data
        return encoded


@dataclass(frozen=True, slots=True)
class Open:
    """Start or re-check one conversation; `heads` None means digest only."""

    conversation: ConversationId
    digest: Digest
    heads: tuple[Position, ...] | None = None
    drafts: bool = False
    number: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """Answer to Open; with `heads` None it only says whether the digests are equal."""

    conversation: ConversationId
    digest: Digest
    equal: bool
    heads: tuple[Position, ...] | None = None
    number: int = 0
    """That of the Open."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Some entries of one conversation, in send order.

    `refused` holds the ids of undecodable entries, with the rule each breaks.
    """

    conversation: ConversationId
    entries: tuple[Entry, ...]
    refused: tuple[tuple[EntryId, EntryRefused], ...] = ()
    more: bool = False
    """Whether the rest of the same message follows; a part without entries is behind the last."""

    @property
    def ids(self) -> tuple[EntryId, ...]:
        """The ids of all entries of the message, refused or not."""
        return (*[e.id for e in self.entries], *[i for i, _ in self.refused])

    @property
    def brings_genesis(self) -> bool:
        """Say whether the conversation's genesis came: who knows the id alone can't make it."""
        return EntryId(self.conversation) in [entry.id for entry in self.entries]


@dataclass(frozen=True, slots=True)
class Ids:
    """All ids held of one conversation, in chunks."""

    conversation: ConversationId
    ids: tuple[EntryId, ...]
    more: bool = False
    answer: bool = False


@dataclass(frozen=True, slots=True)
class Ack:
    """These entries and their lane ancestors are durable."""

    conversation: ConversationId
    ids: tuple[EntryId, ...]


@dataclass(frozen=True, slots=True)
class Credit:
    """Limit of the bytes of counted frames that the peer sends on this link in all."""

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
        """Return an error as a fault; of more than FAULT_IDS_MAX missing ids, the first."""
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
    """A heartbeat, with the bytes of counted frames sent so far."""

    nonce: int
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to a heartbeat: the answerer's counted bytes sent so far, and its limit."""

    nonce: int
    sent_bytes: int = 0
    limit_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ListingItem:
    """One conversation the client is a member of."""

    conversation: ConversationId
    creator: PublicKey | None = None
    """The author of its genesis, as the hub states it."""
    awaited: bool = False
    """A request waits there for the client, which is a model host."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Conversations new since the last Listing of this link, or newly awaited."""

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
