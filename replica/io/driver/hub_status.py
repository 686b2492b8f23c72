"""The current status of a hub: its link, its hosts, the state of each conversation."""

import time
from collections.abc import Callable, Iterable
from math import inf

from replica.conversation import Conversation, means_removal, refusal_of
from replica.core import ReplicaCore, ReplicaEffects
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, PublicKey, short
from replica.io.calls import TlsOnLoopback
from replica.io.driver.hub_link import HubLink
from replica.io.driver.saved_endings import SavedEndings
from replica.io.process import Repeated, get_logger
from replica.io.serving import CertificateOutdated, HubKeyUnknown, error_of
from replica.link import (
    Compared,
    EntryFailed,
    Event,
    Fault,
    Forgotten,
    HostsLearned,
    LinkClosed,
    LinkedHost,
    StateChanged,
    SyncState,
    Welcomed,
)
from replica.refusals import (
    ConversationDeleted,
    HubUnreachable,
    LinkIdle,
    PeerIdentityChanged,
    PinDamaged,
    StoreCorrupt,
    VersionUnsupported,
)

log = get_logger()

_LASTING = {
    error.reason for error in (PeerIdentityChanged, PinDamaged, HubKeyUnknown, VersionUnsupported)
}
"""The reasons for which no later link comes up either, until a person does something."""


class HubStatus:
    """The state of the link to a hub and of each conversation there."""

    def __init__(
        self,
        core: ReplicaCore,
        link: HubLink | None,
        endings: SavedEndings,
        perform: Callable[[ReplicaEffects], object],
        deliver: Callable[[Event], None],
    ) -> None:
        """Read the status from the core and the link; `link` is None if no hub is configured.

        `perform` performs the effects of a question to the hub, `deliver` tells everybody.
        """
        self.hosts: tuple[LinkedHost, ...] = ()
        """The model hosts that the hub named last, those it vouches for first.

        A Welcome names them; what changes behind it is known once somebody asks: `learn_hosts`.
        """
        self.has_vouched = False
        """Whether the hub ever vouched for a host, which comes back after a restart of the hub."""
        self._deliver = deliver
        self._core = core
        self._link = link
        self._endings = endings
        self._perform = perform
        self._lines = Repeated()
        self._states: dict[ConversationId, SyncState] = {}
        self._compared: dict[ConversationId, float] = {}
        """When the last Open was sent that the hub has answered."""
        self._refusals: dict[ConversationId, Fault] = {}
        self._closed_by: Fault | None = None
        self._is_welcomed = False

    def receive(self, event: Event) -> None:
        """Update the status from an event of the replica."""
        match event:
            case StateChanged(conversation, state):
                self._states[conversation] = state
                if state is SyncState.OFFLINE:
                    del self._states[conversation]
                    self._compared.pop(conversation, None)
                fault, refused = self._refusals.get(conversation), self._core.holdings.refused
                is_over = fault is not None and fault.entry not in refused(conversation)
                if state is SyncState.SYNCHRONIZED:
                    self._endings.discard(conversation)
                    if is_over:
                        del self._refusals[conversation]
            case Compared(conversation, since):
                self._compared[conversation] = since
            case Welcomed(welcome):
                self.hosts = welcome.hosts
                self.has_vouched |= any_vouched(self.hosts)
                self._closed_by, self._is_welcomed = None, True
            case HostsLearned(hosts):
                self.hosts = hosts
                self.has_vouched |= any_vouched(self.hosts)
            case EntryFailed(conversation, entry, fault, is_own):
                self._refusals[conversation] = fault
                if is_own and entry is None:
                    self._say_store_failed(conversation, fault)
                elif times := self._lines.due((fault.reason, conversation, entry, is_own)):
                    _say_refused(conversation, entry, fault, times, is_own=is_own)
                if (ending := self.ending(conversation)) is not None:
                    self._endings.note(conversation, ending)
            case Forgotten(conversation):
                self._refusals.pop(conversation, None)
            case LinkClosed(fault):
                self._states.clear()
                self._compared.clear()
                self._closed_by, self._is_welcomed = fault, False
            case _:
                pass

    def _say_store_failed(self, conversation: ConversationId, fault: Fault) -> None:
        """Log that the store failed; a full disk once for all conversations, which it concerns."""
        is_damage = fault.reason == StoreCorrupt.reason
        state = (fault.reason, conversation) if is_damage else fault.reason
        if times := self._lines.due(state):
            log.warning(
                "the store failed",
                reason=fault.reason,
                detail=fault.detail,
                conversation=short(conversation),
                times=times,
            )

    def learn(self, hosts: tuple[LinkedHost, ...]) -> None:
        """Note the hosts that the linked hub named in answer to a question, if they are news."""
        if self.is_linked and hosts != self.hosts:
            self._deliver(HostsLearned(hosts))

    def refusal(self, conversation: ConversationId) -> Fault | None:
        """Return the last fault of a conversation since it was synchronized, if any.

        One that refuses an entry stays as long as the hub does not take that entry.
        """
        fault, held = self._refusals.get(conversation), self._core.shelf.get(conversation)
        entry = fault.entry if fault is not None else None
        if entry is None or held is None or entry not in held.log.entries:
            return fault
        return None if self.is_acked(conversation, entry) else fault

    def denial(self, conversation: ConversationId, entry: EntryId | None = None) -> Fault | None:
        """Return the fault by which the linked hub refuses a whole conversation now, if it does.

        With `entry`, also the one by which it refused that entry for good.
        """
        fault = self._refusals.get(conversation)
        is_whole = fault is not None and fault.entry is None and not fault.retryable
        is_closed = self.state(conversation) in (SyncState.DENIED, SyncState.OFFLINE)
        if self.is_linked and is_whole and is_closed:
            return fault
        return self._core.holdings.refused(conversation).get(entry) if entry is not None else None

    def ending(self, conversation: ConversationId) -> Fault | None:
        """Return the denial of a conversation that is here, if the hub takes nothing ever again.

        It was deleted, or this key was removed from it: `refusal_of` tells which. While the hub
        is away, what it said last counts.
        """
        fault, held = self.denial(conversation), self._core.shelf.get(conversation)
        if self.is_away:
            fault = self._endings.of(conversation)
        if fault is None or held is None:
            return None
        is_removal = means_removal(held, self._core.key, fault.reason)
        return fault if is_removal or fault.reason == ConversationDeleted.reason else None

    def check_taken(self, held: Conversation) -> None:
        """Refuse to write what the hub would never take. Raises KeyRemoved, ConversationDeleted.

        A removed key is not told by an entry, so its own log lets it write (LINK-9).
        """
        fault = self.ending(held.id)
        if fault is not None:
            raise refusal_of(held, self._core.key, error_of(fault))

    def state(self, conversation: ConversationId) -> SyncState:
        """Return the state of a conversation on the link; OFFLINE without a link."""
        return self._states.get(conversation, SyncState.OFFLINE)

    @property
    def is_configured(self) -> bool:
        """Say whether this replica has a hub at all."""
        return self._link is not None

    @property
    def is_linked(self) -> bool:
        """Say whether the link is up, and its Welcome has been delivered: `hosts` are its hosts."""
        return self._is_welcomed and self._core.link.is_ready

    @property
    def key(self) -> PublicKey | None:
        """The key that the hub proved; None while there is no link."""
        return self._core.link.hub

    @property
    def last_error(self) -> AntiphonError | None:
        """The reason why there is no link; None while the hub answers."""
        return self._link.last_error if self._link is not None else None

    @property
    def is_away(self) -> bool:
        """Say whether there is no link, and the last try to make one has failed."""
        return self.last_error is not None and not self.is_linked

    @property
    def is_tried(self) -> bool:
        """Say whether it is known if the hub can be linked: it is, or it is away."""
        return self.is_linked or self.is_away

    @property
    def lasting_error(self) -> AntiphonError | None:
        """The error that ended or prevented the last link, if waiting does not help."""
        if self._link is not None and self._link.has_ended:
            return self._link.last_error
        fault = self._closed_by
        return error_of(fault) if fault is not None and fault.reason in _LASTING else None

    def unsynced(self, conversation: ConversationId) -> int:
        """Count the unacked entries of a loaded conversation.

        While linked, the channel's acks count; otherwise those of earlier links,
        or of any hub if no hub is configured. A hub that takes nothing any more keeps what
        it acked before.
        """
        holdings, held = self._core.holdings, self._core.shelf.get(conversation)
        if held is not None and self.ending(conversation) is not None:
            return len(holdings.acks.unacked(held))
        return len(holdings.unacked(conversation))

    def is_acked(self, conversation: ConversationId, entry: EntryId) -> bool:
        """Say whether the hub showed on this link that it holds `entry` durably."""
        return self._core.holdings.is_acked(conversation, entry)

    def compare(self, conversation: ConversationId) -> float:
        """Ask for what the hub holds now; return the time for `is_in_sync`."""
        now = time.monotonic()
        self._perform(self._core.compare(conversation, now))
        return now

    def is_in_sync(self, conversation: ConversationId, since: float = -inf) -> bool:
        """Say whether hub and replica hold the same log, except for refused entries.

        With `since`, a time of `compare`, everything is here that the hub held then.
        """
        is_compared = self._compared.get(conversation, -inf) >= since
        synced = self.state(conversation) is SyncState.SYNCHRONIZED
        return is_compared and synced and not self._core.holdings.expects_acks(conversation)


def _say_refused(
    conversation: ConversationId, entry: EntryId | None, fault: Fault, times: int, *, is_own: bool
) -> None:
    """Log who refused: the hub, or this replica an entry of the hub.

    What a hub refuses for now is offered again about each second, and refused again.
    """
    said = log.bind(
        reason=fault.reason,
        detail=fault.detail,
        conversation=short(conversation),
        entry=short(entry or b""),
        times=times,
    )
    said.warning("an entry of the hub was refused" if is_own else "the hub refused")


def any_vouched(hosts: Iterable[LinkedHost]) -> bool:
    """Say whether a hub vouches for one of its hosts."""
    return any(host.vouched for host in hosts)


def means_away(error: AntiphonError) -> bool:
    """Say whether an error of the link is that no hub answers; it comes back by itself then.

    A clock that is off is set by a person, and so is a wrong address.
    """
    is_lasting = isinstance(error, CertificateOutdated | TlsOnLoopback)
    return isinstance(error, HubUnreachable | LinkIdle) and not is_lasting
