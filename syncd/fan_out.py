"""The effects of one input to the hub: those of one link, and all that follows on the others.

Pure (spec/04-link §7). What one link admits, the others are offered; a
watcher that is sent something gets a hint with it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NewType

from replica.conversation import Conversation, Draft, Shelf
from replica.ids import ConversationId, EntryId
from replica.link import (
    DraftReceived,
    Effects,
    Entries,
    EntriesAdmitted,
    Frame,
    Link,
    LinkClosed,
    ListingItem,
    Message,
    Opened,
)
from replica.log import Entry, Kind
from syncd.hint import Hint, hint_for

LinkId = NewType("LinkId", int)


@dataclass(frozen=True, slots=True)
class HubEffects:
    """The driver performs these now, in this order."""

    persist: tuple[Entry, ...] = ()
    """Durable BEFORE anything in `send` leaves."""
    send: tuple[tuple[LinkId, Frame], ...] = ()
    hints: tuple[tuple[LinkId, Hint], ...] = ()
    """For watchers, after what they are sent."""
    closed: tuple[LinkId, ...] = ()
    """Links whose streams end after `send`."""


@dataclass(slots=True)
class Connected:
    """The links of a hub, and what each peer is told beside its conversations."""

    links: dict[LinkId, Link] = field(default_factory=dict)
    listed: dict[LinkId, set[ConversationId]] = field(default_factory=dict)
    """Conversations a follower has been told of."""
    watchers: set[LinkId] = field(default_factory=set)


class FanOut:
    """Collects effects while one input is handled."""

    def __init__(
        self,
        connected: Connected,
        shelf: Shelf,
        now: float,
        brought: Iterable[EntryId] = (),
    ) -> None:
        """Start empty; `brought` is what the source itself has just sent."""
        self._connected = connected
        self._shelf = shelf
        self._now = now
        self._brought = frozenset(brought)
        self._persist: list[Entry] = []
        self._send: list[tuple[LinkId, Frame]] = []
        self._closed: list[LinkId] = []

    def add(self, source: LinkId | None, effects: Effects) -> None:
        """Take one link's effects and let its events reach the others.

        Without a source, as of a Push, nobody reads what is to be sent.
        """
        self._persist += effects.persist
        if source is not None:
            self._send += [(source, frame) for frame in effects.send]
        for event in effects.deliver:
            match event:
                case EntriesAdmitted(conversation, entries):
                    self._offer_entries(source, conversation, entries)
                case DraftReceived(draft):
                    self._offer_draft(source, draft)
                case LinkClosed() if source is not None:
                    self._closed.append(source)
                case _:
                    pass

    def send(self, link_id: LinkId, message: Message) -> None:
        """Send one message that no link asked for."""
        self._send.append((link_id, Frame.of(message, "to_client")))

    def list_all(self, link_id: LinkId) -> None:
        """Name all its conversations to a follower that has just arrived (LINK-8)."""
        if not self._connected.links[link_id].follows:
            return
        for held in sorted(self._shelf.values(), key=lambda c: c.id):
            self._list(link_id, held)

    def build(self) -> HubEffects:
        """Freeze what was collected, with a hint for each watcher that is sent something."""
        hints = self._hints() if self._connected.watchers else ()
        return HubEffects(tuple(self._persist), tuple(self._send), hints, tuple(self._closed))

    def _offer_entries(
        self, source: LinkId | None, conversation: ConversationId, entries: tuple[Entry, ...]
    ) -> None:
        ids = [entry.id for entry in entries]
        membership_changed = any(e.header.kind in (Kind.GENESIS, Kind.MEMBER) for e in entries)
        for link_id, link in self._connected.links.items():
            # What another link brought and the source's entries set free is new to it too.
            lacking = ids if link_id != source else [i for i in ids if not self._has(link, i)]
            if lacking:
                self.add(link_id, link.offer(conversation, lacking, self._now))
            if membership_changed and link.follows:
                self._list(link_id, self._shelf[conversation])

    def _has(self, source: Link, entry_id: EntryId) -> bool:
        return entry_id in self._brought or entry_id in source.intake.pending

    def _offer_draft(self, source: LinkId | None, draft: Draft) -> None:
        for link_id, link in self._connected.links.items():
            if link_id != source:
                self.add(link_id, link.offer_drafts(draft.conversation, draft.request))

    def _list(self, link_id: LinkId, held: Conversation) -> None:
        link, listed = self._connected.links[link_id], self._connected.listed[link_id]
        if link.peer is not None and held.id not in listed and held.is_member(link.peer):
            listed.add(held.id)
            item = ListingItem(held.id, held.log.digest)
            self.add(link_id, link.list_conversations([item]))

    def _hints(self) -> tuple[tuple[LinkId, Hint], ...]:
        # LINK-27: in the step that checks membership, and of what goes out with it.
        news = {
            link_id: frame.message.conversation
            for link_id, frame in self._send
            if link_id in self._connected.watchers and isinstance(frame.message, (Entries, Opened))
        }
        hints = []
        for link_id, conversation in news.items():
            held, peer = self._shelf.get(conversation), self._connected.links[link_id].peer
            if held is not None and peer is not None and held.is_member(peer):
                hints.append((link_id, hint_for(held, peer)))
        return tuple(hints)
