"""The effects of one input to the hub: those of its link, and those on other links.

Pure (spec/04-link §7). Entries admitted on one link are offered on the others.
A watcher that is sent entries gets a hint from the same step (DECISIONS D33).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from replica.conversation import Draft
from replica.ids import ConversationId, EntryId
from replica.link import (
    DraftReceived,
    Effects,
    Entries,
    EntriesAdmitted,
    Frame,
    Link,
    LinkClosed,
    LinkedHost,
    ListingItem,
    Message,
    Opened,
    Welcome,
)
from replica.log import Entry, Kind
from syncd.connected import Connected, LinkId
from syncd.hint import Hint, hint_for
from syncd.shelf import HubShelf


@dataclass(frozen=True, slots=True)
class HubEffects:
    """Effects that the driver performs now, in this order."""

    persist: tuple[Entry, ...] = ()
    """Durable before any frame of `send` is written."""
    send: tuple[tuple[LinkId, Frame], ...] = ()
    hints: tuple[tuple[LinkId, Hint], ...] = ()
    """Hints for watchers, after the frames sent to them."""
    closed: tuple[LinkId, ...] = ()
    """Links whose streams end after `send`."""


class FanOut:
    """Collects the effects of one input."""

    def __init__(
        self,
        connected: Connected,
        shelf: HubShelf,
        now: float,
        brought: Iterable[EntryId] = (),
    ) -> None:
        """Start empty; `brought` are the ids that the source itself has just sent."""
        self._connected = connected
        self._shelf = shelf
        self._now = now
        self._brought = frozenset(brought)
        self._persist: list[Entry] = []
        self._send: list[tuple[LinkId, Frame]] = []
        self._closed: list[LinkId] = []

    def add(self, source: LinkId | None, effects: Effects) -> None:
        """Add one link's effects, and offer its events to the other links.

        Without a source, as for a Push, the frames to send are dropped.
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
        """Send one message outside the effects of a link."""
        self._send.append((link_id, Frame.of(message, "to_client")))

    def list_all(self, link_id: LinkId) -> None:
        """List all conversations of a follower that has just connected (LINK-8)."""
        if not self._connected.links[link_id].follows:
            return
        peer = self._connected.links[link_id].peer
        for conversation, digest in self._shelf.listing(peer) if peer is not None else ():
            self._list(link_id, ListingItem(conversation, digest))

    def list_one(self, conversation: ConversationId) -> None:
        """List a conversation to those following members it was not listed to yet."""
        held = self._shelf[conversation]
        for link_id, link in self._connected.links.items():
            if link.follows and link.peer is not None and held.is_member(link.peer):
                self._list(link_id, ListingItem(held.id, held.log.digest))

    def welcome(self, link_id: LinkId, effects: Effects, hosts: tuple[LinkedHost, ...]) -> None:
        """Add a link's effects with the linked hosts in its Welcome."""
        named = [
            Frame.of(replace(frame.message, hosts=hosts), "to_client")
            if isinstance(frame.message, Welcome)
            else frame
            for frame in effects.send
        ]
        self.add(link_id, replace(effects, send=tuple(named)))

    def bound_pending(self, bytes_max: int) -> None:
        """Drop the pending entries of the link with most bytes until `bytes_max` is kept."""
        links = self._connected.links
        if sum(link.intake.pending_bytes for link in links.values()) <= bytes_max:
            return
        for link in links.values():
            link.intake.release()
        while sum(link.intake.pending_bytes for link in links.values()) > bytes_max:
            link_id = max(links, key=lambda link_id: links[link_id].intake.pending_bytes)
            self.add(link_id, links[link_id].drop_pending())

    def build(self) -> HubEffects:
        """Return the collected effects, with a hint for each watcher that is sent entries."""
        hints = self._hints() if self._connected.watchers else ()
        return HubEffects(tuple(self._persist), tuple(self._send), hints, tuple(self._closed))

    def _offer_entries(
        self, source: LinkId | None, conversation: ConversationId, entries: tuple[Entry, ...]
    ) -> None:
        ids = [entry.id for entry in entries]
        membership_changed = any(e.header.kind in (Kind.GENESIS, Kind.MEMBER) for e in entries)
        for link_id, link in self._connected.readers(conversation):
            # Pending entries of other links, admitted with these, are new to the source too.
            lacking = ids if link_id != source else [i for i in ids if not self._has(link, i)]
            if lacking:
                self.add(link_id, link.offer(conversation, lacking, self._now))
        if membership_changed:
            self.list_one(conversation)

    def _has(self, source: Link, entry_id: EntryId) -> bool:
        return entry_id in self._brought or entry_id in source.intake.pending

    def _offer_draft(self, source: LinkId | None, draft: Draft) -> None:
        for link_id, link in self._connected.readers(draft.conversation):
            if link_id != source:
                self.add(link_id, link.offer_drafts(draft.conversation, draft.request))

    def _list(self, link_id: LinkId, item: ListingItem) -> None:
        listed = self._connected.listed[link_id]
        if item.conversation not in listed:
            listed.add(item.conversation)
            self.add(link_id, self._connected.links[link_id].list_conversations([item]))

    def _hints(self) -> tuple[tuple[LinkId, Hint], ...]:
        # LINK-27: a hint belongs to the step that checks membership and sends the entries.
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
