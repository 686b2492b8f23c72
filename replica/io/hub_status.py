"""What a replica knows of its hub at the moment: the link, its hosts, what is in sync."""

import structlog

from replica.core import ReplicaCore
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, PublicKey
from replica.io.hub_link import HubLink
from replica.link import (
    EntryFailed,
    Event,
    LinkClosed,
    LinkedHost,
    StateChanged,
    SyncState,
    Welcomed,
)

log = structlog.get_logger()


class HubStatus:
    """The state of the link to a hub and of each conversation there."""

    def __init__(self, core: ReplicaCore, link: HubLink | None) -> None:
        """Read from the replica's core and its link; without a link, no hub is configured."""
        self.hosts: tuple[LinkedHost, ...] = ()
        """The model hosts the last Welcome named, those the hub vouches for first.

        One that has come or gone since shows with the next link.
        """
        self._core = core
        self._link = link
        self._states: dict[ConversationId, SyncState] = {}

    def receive(self, event: Event) -> None:
        """Follow an event of the replica."""
        match event:
            case StateChanged(conversation, state):
                self._states[conversation] = state
            case Welcomed(welcome):
                self.hosts = welcome.hosts
            case EntryFailed(_, entry, fault):
                log.warning("refused", reason=fault.reason, detail=fault.detail, entry=entry)
            case LinkClosed():
                self._states.clear()
            case _:
                pass

    def state(self, conversation: ConversationId) -> SyncState:
        """Return the state of a conversation on the link; OFFLINE where there is none."""
        return self._states.get(conversation, SyncState.OFFLINE)

    @property
    def is_linked(self) -> bool:
        """Say whether the link is up."""
        return self._core.link.is_ready

    @property
    def key(self) -> PublicKey | None:
        """The key the hub proved, once linked."""
        return self._core.link.hub

    @property
    def last_error(self) -> AntiphonError | None:
        """Why there is no link; None while the hub answers."""
        return self._link.last_error if self._link is not None else None

    def unsynced(self, conversation: ConversationId) -> int:
        """Count entries of a loaded conversation that the hub is not known to hold durably.

        While linked, as the link has it; else by the acks of earlier links,
        those of any hub where no hub is configured.
        """
        return len(self._core.holdings.unacked(conversation))

    def is_acked(self, conversation: ConversationId, entry: EntryId) -> bool:
        """Say whether the hub showed on this link that it holds `entry` durably."""
        return self._core.holdings.is_acked(conversation, entry)

    def is_in_sync(self, conversation: ConversationId) -> bool:
        """Say whether the hub has the same log, but for entries that it refused for good."""
        synced = self.state(conversation) is SyncState.SYNCHRONIZED
        return synced and not self._core.holdings.expects_acks(conversation)
