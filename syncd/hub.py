"""The hub: links and conversations in, effects out, fan-out (spec/04-link §7).

Pure. One Link per connected replica, all over one shelf. What one link
admits, the others are offered. The driver performs HubEffects strictly in the
order they were returned, many at a time if it likes: first everything to
persist, in one transaction, then everything to send. That order is what makes
an ack, and every entry passed on, durable.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NewType

from replica import limits
from replica.conversation import Conversation, Draft, Shelf
from replica.ids import ConversationId, EntryId, PublicKey
from replica.link import (
    DraftReceived,
    Effects,
    Entries,
    EntriesAdmitted,
    Fault,
    Link,
    LinkClosed,
    LinkedHost,
    ListingItem,
    Message,
    Opened,
    Phase,
    Side,
    Welcome,
)
from replica.log import NOTHING_LOST, Entry, Kind, Lost
from replica.refusals import (
    ConversationDeleted,
    ConversationUnknown,
    CreateForbidden,
    EntriesMissing,
    PendingFull,
)
from syncd.hint import Hint, hint_for
from syncd.policy import Policy

LinkId = NewType("LinkId", int)

_MESSAGE_WIDE = (ConversationUnknown.reason, CreateForbidden.reason)
"""Reasons to refuse a message as a whole, whichever entry the fault names."""


@dataclass(frozen=True, slots=True)
class HubEffects:
    """What the driver does now, in this order."""

    persist: tuple[Entry, ...] = ()
    """Durable BEFORE anything in `send` leaves."""
    send: tuple[tuple[LinkId, Message], ...] = ()
    hints: tuple[tuple[LinkId, Hint], ...] = ()
    """For watchers, after what they are sent."""
    closed: tuple[LinkId, ...] = ()
    """Links whose streams end after `send`."""


@dataclass(slots=True)
class _Collector:
    brought: frozenset[EntryId] = frozenset()
    """Entries the source itself has just sent, which it need not be offered."""
    persist: list[Entry] = field(default_factory=list)
    send: list[tuple[LinkId, Message]] = field(default_factory=list)
    closed: list[LinkId] = field(default_factory=list)


class Hub:
    """Everything a hub knows, without a socket, a clock or a disk."""

    def __init__(self, key: PublicKey, policy: Policy) -> None:
        """Start with an empty shelf and no links."""
        self.key = key
        self.policy = policy
        self.shelf: Shelf = {}
        self.links: dict[LinkId, Link] = {}
        self.deleted: set[ConversationId] = set()
        self._next_link = 1
        self._listed: dict[LinkId, set[ConversationId]] = {}
        self._watchers: set[LinkId] = set()

    # --- conversations ------------------------------------------------------

    def load(
        self, conversation: ConversationId, entries: Iterable[Entry], lost: Lost = NOTHING_LOST
    ) -> None:
        """Put a stored conversation on the shelf, in place of what was there."""
        self.shelf[conversation] = Conversation.restore(conversation, entries, lost)

    def forget(self, conversation: ConversationId, fault: Fault | None = None) -> HubEffects:
        """Take a conversation off the shelf and all links; the store is the driver's."""
        out = _Collector()
        self.shelf.pop(conversation, None)
        for link_id, link in self.links.items():
            self._collect(link_id, link.leave(conversation, fault), out, 0.0)
        return self._build(out)

    def member_conversations(self, key: PublicKey) -> list[ListingItem]:
        """Return the conversations `key` is a member of, ordered by id."""
        held = (c for c in self.shelf.values() if c.is_member(key))
        return sorted(
            (ListingItem(c.id, c.log.digest) for c in held), key=lambda item: item.conversation
        )

    def hosts(self) -> tuple[LinkedHost, ...]:
        """Return the model hosts linked now, one per key, as a Welcome names them (LINK-29).

        Links stand in the order they came, and so do the hosts of each group:
        unlike a key, a link's age can't be made up.
        """
        infos = {link.host.key: link.host for link in self.links.values() if link.host}
        hosts = [LinkedHost(info, self.policy.vouches_for(key)) for key, info in infos.items()]
        hosts.sort(key=lambda host: not host.vouched)
        return tuple(hosts[: limits.HOSTS_MAX])

    # --- links ----------------------------------------------------------------

    def connect(self, peer: PublicKey, now: float, *, watches: bool = False) -> LinkId:
        """Take a new link of an authenticated key; a watcher gets a Hint with what it is sent."""
        link_id = LinkId(self._next_link)
        self._next_link += 1
        self.links[link_id] = self._new_link(peer, now)
        self._listed[link_id] = set()
        if watches:
            self._watchers.add(link_id)
        return link_id

    def _new_link(self, peer: PublicKey, now: float) -> Link:
        return Link(
            Side.HUB,
            key=self.key,
            peer=peer,
            shelf=self.shelf,
            now=now,
            may_create=self.policy.may_create,
            entries_max=self.policy.entries_max,
        )

    def disconnect(self, link_id: LinkId) -> None:
        """Forget a link whose stream is gone."""
        link = self.links.pop(link_id, None)
        self._listed.pop(link_id, None)
        self._watchers.discard(link_id)
        if link is not None:
            link.handle_disconnect()

    def receive(
        self, link_id: LinkId, message: Message, now: float, frame_bytes: int = 0
    ) -> HubEffects:
        """Take one message from a link."""
        out = _Collector()
        link = self.links.get(link_id)
        if link is not None and getattr(message, "conversation", None) in self.deleted:
            fault = Fault.of(ConversationDeleted(), getattr(message, "conversation", None))
            out.send.append((link_id, fault))
        elif link is not None:
            was_ready = link.phase is Phase.READY
            waited_bytes = link.exchange.intake.pending_bytes
            if isinstance(message, Entries):
                out.brought = frozenset(entry.id for entry in message.entries)
            self._collect(link_id, link.receive(message, now, frame_bytes), out, now)
            if not was_ready and link.phase is Phase.READY:
                self._list_all(link_id, link, out, now)
            if link.exchange.intake.pending_bytes > waited_bytes:
                self._bound_pending(out)
        return self._build(out)

    def _bound_pending(self, out: _Collector) -> None:
        """Where all links together keep too much waiting, the one that keeps most gives it up."""
        intakes = {link_id: link.exchange.intake for link_id, link in self.links.items()}
        if sum(i.pending_bytes for i in intakes.values()) <= self.policy.pending_bytes_max:
            return
        for intake in intakes.values():
            intake.settle()
        while sum(i.pending_bytes for i in intakes.values()) > self.policy.pending_bytes_max:
            link_id, intake = max(intakes.items(), key=lambda item: item[1].pending_bytes)
            for conversation in sorted({c for c, _ in intake.pending.values()}):
                out.send.append((link_id, Fault.of(PendingFull(), conversation)))
            intake.drop_pending()

    def push(
        self, peer: PublicKey, message: Entries, now: float
    ) -> tuple[HubEffects, dict[EntryId, Fault | None]]:
        """Append without a link; return per entry its fault, None once the effects are done.

        What must wait for missing entries is refused: without a link nobody
        would pay for its keep.
        """
        if message.conversation in self.deleted:
            gone = Fault.of(ConversationDeleted(), message.conversation)
            return HubEffects(), {e.id: gone for e in message.entries}
        out = _Collector()
        link = self._new_link(peer, now)
        effects = link.exchange_once(message, now)
        faults = [m for m in effects.send if isinstance(m, Fault)]
        self._collect(None, Effects(effects.persist, (), effects.deliver), out, now)
        link.handle_disconnect()  # what waits for others must not stay without a payer
        return self._build(out), self._outcomes(message, faults)

    def _outcomes(self, message: Entries, faults: list[Fault]) -> dict[EntryId, Fault | None]:
        ids = message.ids
        as_a_whole = next((f for f in faults if f.reason in _MESSAGE_WIDE), None)
        if as_a_whole is not None:
            # That an entry is here all the same is not for a stranger to know.
            return {i: replace(as_a_whole, entry=None) for i in ids}
        held = self.shelf.get(message.conversation)
        known = held.log.entries if held is not None else {}
        return {i: None if i in known else _fault_of(i, faults) for i in ids}

    def handle_deadlines(self, now: float) -> HubEffects:
        """Let every link do what is due."""
        out = _Collector()
        for link_id, link in tuple(self.links.items()):
            self._collect(link_id, link.handle_deadline(now), out, now)
        return self._build(out)

    # --- fan-out ----------------------------------------------------------------

    def _build(self, out: _Collector) -> HubEffects:
        hints = self._hints(out.send) if self._watchers else ()
        return HubEffects(tuple(out.persist), tuple(out.send), hints, tuple(out.closed))

    def _hints(self, sent: list[tuple[LinkId, Message]]) -> tuple[tuple[LinkId, Hint], ...]:
        """Return one hint for each watcher that is sent something, by what it may see now."""
        news = {
            link_id: message.conversation
            for link_id, message in sent
            if link_id in self._watchers and isinstance(message, (Entries, Opened))
        }
        hints = []
        for link_id, conversation in news.items():
            held, peer = self.shelf.get(conversation), self.links[link_id].peer
            if held is not None and peer is not None and held.is_member(peer):
                hints.append((link_id, hint_for(held, peer)))
        return tuple(hints)

    def _collect(
        self, link_id: LinkId | None, effects: Effects, out: _Collector, now: float
    ) -> None:
        """Take one link's effects and let its events reach the others."""
        out.persist += effects.persist
        if link_id is not None:
            out.send += [(link_id, self._complete(message)) for message in effects.send]
        for event in effects.deliver:
            match event:
                case EntriesAdmitted(conversation, entries):
                    self._fan_out(link_id, conversation, entries, out, now)
                case DraftReceived(draft):
                    self._fan_out_draft(link_id, draft, out, now)
                case LinkClosed() if link_id is not None:
                    out.closed.append(link_id)
                case _:
                    pass

    def _complete(self, message: Message) -> Message:
        # Only the hub knows which hosts are linked.
        return replace(message, hosts=self.hosts()) if isinstance(message, Welcome) else message

    def _fan_out(
        self,
        source: LinkId | None,
        conversation: ConversationId,
        entries: tuple[Entry, ...],
        out: _Collector,
        now: float,
    ) -> None:
        ids = [e.id for e in entries]
        membership_changed = any(e.header.kind in (Kind.GENESIS, Kind.MEMBER) for e in entries)
        for link_id, link in self.links.items():
            lacking = ids
            if link_id == source:
                # What another link brought and this one's entries have set free is new to it too.
                sent = link.exchange.intake.pending
                lacking = [i for i in ids if i not in out.brought and i not in sent]
            if lacking:
                self._collect(link_id, link.offer(conversation, lacking, now), out, now)
            if membership_changed:
                self._list_one(link_id, link, self.shelf[conversation], out, now)

    def _fan_out_draft(
        self, source: LinkId | None, draft: Draft, out: _Collector, now: float
    ) -> None:
        for link_id, link in self.links.items():
            if link_id != source:
                grown = link.offer_drafts(draft.conversation, draft.request)
                self._collect(link_id, grown, out, now)

    def _list_one(
        self, link_id: LinkId, link: Link, held: Conversation, out: _Collector, now: float
    ) -> None:
        listed = self._listed[link_id]
        if link.follows and held.id not in listed and held.is_member(link.peer or self.key):
            listed.add(held.id)
            item = ListingItem(held.id, held.log.digest)
            self._collect(link_id, link.list_conversations([item]), out, now)

    def _list_all(self, link_id: LinkId, link: Link, out: _Collector, now: float) -> None:
        for held in sorted(self.shelf.values(), key=lambda c: c.id):
            self._list_one(link_id, link, held, out, now)


def _fault_of(entry_id: EntryId, faults: list[Fault]) -> Fault:
    """Return why an entry of a push is not durable."""
    own = (f for f in faults if f.entry == entry_id)
    general = (f for f in faults if f.entry is None)
    # What waits already, for another link, causes no fault here.
    return next(own, None) or next(general, None) or Fault.of(EntriesMissing())
