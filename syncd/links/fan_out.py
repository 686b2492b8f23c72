"""The effects of one input to the hub: those of its link, and those on other links.

Pure (spec/04-link §7). Entries admitted on one link are offered on the others.
A watcher that is sent entries gets a hint from the same step (DECISIONS D33).
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from replica import limits
from replica.conversation import Draft, hosts_awaited
from replica.ids import ConversationId, EntryId, PublicKey
from replica.link import (
    Close,
    DraftReceived,
    Effects,
    Entries,
    EntriesAdmitted,
    Fault,
    Frame,
    LinkClosed,
    LinkedHost,
    ListingItem,
    Message,
    Opened,
    Welcome,
    is_ready,
    takes_drafts,
)
from replica.log import Entry, Kind
from syncd.links.connected import Connected, LinkId
from syncd.links.hint import Answered, Hint, answers, hint_for
from syncd.links.listing import item_of, list_of
from syncd.shelves import HubShelf

LIST_STEP_ITEMS = 64
"""Items of a list in one step: some 0.5 ms."""
SEND_COST_MAX, LINK_COST = 1_000, 8
"""Entries, or frames of a draft, that one step sends to other links, with so many for each link:
some 2 ms."""
_ITEM_LANES = 128
"""Lanes whose digest, where it is due, costs as much as an item."""


@dataclass(frozen=True, slots=True)
class HubEffects:
    """Effects that the driver performs now, in this order."""

    persist: tuple[Entry, ...] = ()
    """Durable before any frame of `send` is written."""
    send: tuple[tuple[LinkId, Frame], ...] = ()
    answered: tuple[tuple[LinkId, Answered], ...] = ()
    """Answers among the entries sent to watchers, after the frames."""
    hints: tuple[tuple[LinkId, Hint], ...] = ()
    """Hints for watchers, after all else that is sent to them."""
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
        self._last: Frame | None = None
        self.cost = 0
        """Of what this step has sent to other links; see SEND_COST_MAX."""

    def add(self, source: LinkId | None, effects: Effects) -> None:
        """Add one link's effects, and offer its events to the other links.

        Without a source, as for a Push, the frames to send are dropped.
        """
        self._persist += effects.persist
        if source is not None:
            self._send += [(source, self._shared(frame)) for frame in effects.send]
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

    def _shared(self, frame: Frame) -> Frame:
        """Return the frame of the link before if it is equal: the readers of an entry share one."""
        if self._last is None or self._last.data != frame.data:
            self._last = frame
        return self._last

    def send(self, link_id: LinkId, message: Message) -> None:
        """Send one message outside the effects of a link."""
        self._send.append((link_id, Frame.of(message, "to_client")))

    def close(self, conversation: ConversationId, fault: Fault) -> None:
        """Close a conversation on all links that have it open."""
        frame = Frame.of(Close(conversation, fault), "to_client")
        for link_id, link in self._connected.readers(conversation):
            self._connected.catch_up(link_id, conversation, self._now)
            self.add(link_id, link.leave(conversation, frame))

    def begin_list(self, link_id: LinkId) -> None:
        """Begin the list of all conversations of a follower that has just connected (LINK-8)."""
        link = self._connected.links[link_id]
        if link.follows and link.peer is not None:
            self._connected.to_list[link_id] = list_of(self._shelf, link.peer)

    def list_more(self, link_id: LinkId) -> None:
        """Go on with the list of a follower by one step, if it is due (LINK-94)."""
        link = self._connected.links.get(link_id)
        if link is None or link.peer is None or not self._connected.is_list_due(link_id):
            return
        rest, items, cost = self._connected.to_list[link_id], list[ListingItem](), 0
        while rest and cost < min(LIST_STEP_ITEMS, limits.LISTING_ITEMS_MAX):
            conversation = next(rest)
            item = item_of(self._shelf, conversation, link.peer)
            items += [item] if item is not None else []
            held = self._shelf.get(conversation)
            cost += 1 + (held.log.lane_count() // _ITEM_LANES if held is not None else 0)
        if not rest:
            del self._connected.to_list[link_id]
        self._list(link_id, items)

    def list_one(self, conversation: ConversationId) -> None:
        """List a conversation to those following members it was not listed to yet."""
        held = self._shelf[conversation]
        for peer, followers in self._connected.followers(held.log.membership.roles):
            new = [i for i in followers if conversation not in self._connected.listed[i]]
            item = item_of(self._shelf, conversation, peer) if new else None
            if item is not None:
                for link_id in new:
                    self._list(link_id, [item])

    def list_awaited(self, conversation: ConversationId, hosts: Iterable[PublicKey]) -> None:
        """List a conversation again to hosts for which a request waits, unless it is open there."""
        for host in dict.fromkeys(hosts):
            links = self._connected.not_told(host, conversation)
            item = item_of(self._shelf, conversation, host) if links else None
            if item is None or not item.awaited:
                continue
            for link_id in links:
                self._connected.awaited.setdefault(link_id, set()).add(conversation)
                self._connected.listed[link_id].add(conversation)
                self.add(link_id, self._connected.list_on(link_id, [item], self._now))

    def welcome(self, link_id: LinkId, effects: Effects, hosts: tuple[LinkedHost, ...]) -> None:
        """Add a link's effects with the linked hosts in its Welcome."""
        named = [
            Frame.of(replace(frame.message, hosts=hosts), "to_client")
            if isinstance(frame.message, Welcome)
            else frame
            for frame in effects.send
        ]
        self.add(link_id, replace(effects, send=tuple(named)))

    def bound_pending(self, bytes_max: int) -> int:
        """Drop the pending entries of the link with most bytes until `bytes_max` is kept.

        Returns the bytes that are left.
        """
        links = self._connected.links
        for link in links.values():
            link.intake.release()
        while (left := sum(link.intake.pending_bytes for link in links.values())) > bytes_max:
            link_id = max(links, key=lambda link_id: links[link_id].intake.pending_bytes)
            self.add(link_id, links[link_id].drop_pending())
        return left

    def build(self) -> HubEffects:
        """Return the collected effects, with a hint for each watcher that is sent entries."""
        watched = bool(self._connected.watchers)
        return HubEffects(
            tuple(self._persist),
            tuple(self._send),
            tuple(self._answered()) if watched else (),
            self._hints() if watched else (),
            tuple(self._closed),
        )

    def _offer_entries(
        self, source: LinkId | None, conversation: ConversationId, entries: tuple[Entry, ...]
    ) -> None:
        kinds = {entry.header.kind for entry in entries}
        if readers := self._connected.keys_of_readers(conversation):
            log = self._shelf[conversation].log
            offered = tuple(log.offered([entry.id for entry in entries]))
            for link_id, key in readers if offered else ():
                if link_id != source and self._waits(conversation, key, link_id):
                    self._connected.postponed.add((conversation, key), link_id, offered)
                    continue
                if (link := self._connected.reader(conversation, link_id)) is None:
                    continue
                # New to the source too: pending entries of other links, admitted with these, and
                # those that a grant of its own made covered.
                lacking = offered
                if link_id == source:
                    lacking = _without(offered, self._brought, link.intake.pending)
                if lacking and self._may_send(conversation, link_id, len(lacking)):
                    self.add(link_id, link.offer(conversation, lacking, self._now))
                elif lacking:
                    link.offer(conversation, lacking, self._now, pumps=False)
        if Kind.GENESIS in kinds or Kind.MEMBER in kinds:
            self.list_one(conversation)
        if Kind.REQUEST in kinds:
            self.list_awaited(conversation, hosts_awaited(self._shelf[conversation]))

    def _offer_draft(self, source: LinkId | None, draft: Draft) -> None:
        for link_id, link in self._connected.readers(draft.conversation):
            if link_id != source and takes_drafts(link, draft.conversation):
                if self._may_send(draft.conversation, link_id, 1):
                    self.add(link_id, link.offer_drafts(draft.conversation, draft.request))
                else:
                    link.offer_drafts(draft.conversation, draft.request, pumps=False)

    def _waits(self, conversation: ConversationId, key: PublicKey, link_id: LinkId) -> bool:
        """Say whether a link is sent nothing now: it waits already, or for what comes before it."""
        postponed = self._connected.postponed
        is_full = self.cost >= SEND_COST_MAX and postponed.is_driven
        return is_full or postponed.has((conversation, key), link_id)

    def _may_send(self, conversation: ConversationId, link_id: LinkId, count: int) -> bool:
        """Say whether a link is sent something in this step; if not, let it wait for a later one.

        A link behind a backlog waits for the credit of its peer alone.
        """
        link = self._connected.links[link_id]
        if not is_ready(link, conversation):
            return False
        assert link.peer is not None, "links of a hub are authenticated"
        if not self._waits(conversation, link.peer, link_id):
            self.cost += LINK_COST + min(count, SEND_COST_MAX)
            return True
        self._connected.postponed.add((conversation, link.peer), link_id)
        return False

    def resume(self, link_id: LinkId, conversation: ConversationId) -> None:
        """Send a link what waits for it, unless it waits for credit now."""
        link = self._connected.links[link_id]
        goes_on = is_ready(link, conversation) or conversation in link.exchange.passed_over
        self._connected.catch_up(link_id, conversation, self._now)
        if not goes_on:
            self.cost += LINK_COST
            return
        effects = link.resume(conversation)
        frames = (frame.message for frame in effects.send)
        counts = (len(one.entries) if isinstance(one, Entries) else 1 for one in frames)
        self.cost += LINK_COST + sum(counts)
        self.add(link_id, effects)

    def _list(self, link_id: LinkId, items: Sequence[ListingItem]) -> None:
        listed = self._connected.listed[link_id]
        new = {i.conversation: i for i in items if i.conversation not in listed}
        if new:
            listed.update(new)
            self.add(link_id, self._connected.list_on(link_id, new.values(), self._now))

    def _answered(self) -> Iterator[tuple[LinkId, Answered]]:
        for link_id, frame in self._send:
            message = frame.message
            if link_id in self._connected.watchers and isinstance(message, Entries):
                held = self._shelf.get(message.conversation)
                if held is not None:
                    yield from ((link_id, one) for one in answers(held, message.entries))

    def _hints(self) -> tuple[tuple[LinkId, Hint], ...]:
        # LINK-27: a hint belongs to the step that checks membership and sends the entries.
        news = {
            link_id: frame.message.conversation
            for link_id, frame in self._send
            if link_id in self._connected.watchers and isinstance(frame.message, (Entries, Opened))
        }
        hints: list[tuple[LinkId, Hint]] = []
        of: dict[tuple[ConversationId, PublicKey], Hint] = {}  # one serves all Watches of a key
        for link_id, conversation in news.items():
            link, held = self._connected.links[link_id], self._shelf.get(conversation)
            peer = link.peer
            channel = link.channels.get(conversation)
            if channel is not None and channel.backlog is not None and channel.backlog.has_more():
                continue  # the hint comes behind the last entry
            if held is not None and peer is not None and held.is_member(peer):
                if (conversation, peer) not in of:
                    of[conversation, peer] = hint_for(held, peer)
                hints.append((link_id, of[conversation, peer]))
        return tuple(hints)


def list_more(connected: Connected, shelf: HubShelf, link_id: LinkId) -> HubEffects:
    """Go on with a list by a step; repeat it while `Connected.is_list_due`, others between."""
    out = FanOut(connected, shelf, 0.0)
    out.list_more(link_id)
    return out.build()


def _without(ids: Iterable[EntryId], *known: Container[EntryId]) -> tuple[EntryId, ...]:
    return tuple(i for i in ids if not any(i in one for one in known))
