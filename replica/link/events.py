"""The events a link delivers to the application, all frozen (spec/04-link)."""

from dataclasses import dataclass
from enum import Enum

from replica.conversation import Draft
from replica.ids import ConversationId, EntryId, Position
from replica.link.messages import Fault, LinkedHost, ListingItem, Welcome
from replica.log import Entry


class SyncState(Enum):
    """The known state of a conversation between a replica and its hub."""

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
    freed: frozenset[EntryId] = frozenset()
    """Those of them that the peer did not send: they were held here, and pending."""


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
    is_own: bool = False
    """Whether this side refused, or failed, and not the peer."""


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The SyncState of a conversation changed."""

    conversation: ConversationId
    state: SyncState


@dataclass(frozen=True, slots=True)
class Compared:
    """The hub answered an Open. All that it held then is here, or the state is not SYNCHRONIZED.

    On a stream that loses nothing: a hub sends what it holds before it answers (LINK-11).
    """

    conversation: ConversationId
    since: float
    """When the Open was sent, in seconds on the link's clock."""


@dataclass(frozen=True, slots=True)
class DraftReceived:
    """A draft arrived; its signature was checked against its host's key."""

    draft: Draft


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The link is up."""

    welcome: Welcome


@dataclass(frozen=True, slots=True)
class HostsLearned:
    """The hub was asked, and named other linked hosts than before."""

    hosts: tuple[LinkedHost, ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """The hub named conversations we are a member of."""

    items: tuple[ListingItem, ...]


@dataclass(frozen=True, slots=True)
class LinkClosed:
    """The link ended; the driver closes the stream."""

    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The replica no longer holds a conversation in memory."""

    conversation: ConversationId


Event = (
    EntriesAdmitted
    | EntriesAcked
    | EntryFailed
    | StateChanged
    | Compared
    | DraftReceived
    | Welcomed
    | HostsLearned
    | Listed
    | LinkClosed
    | Forgotten
)
