"""The hub: links and conversations in, effects out (spec/04-link §7).

Pure. One Link per connected replica, all over one shelf. The driver performs
HubEffects strictly in the order they were returned. It may combine several:
first everything to persist, in one transaction, then everything to send.
This order makes acked and forwarded entries durable. A deleted conversation
leaves a tombstone and is refused to anyone (DECISIONS D42, D43). Hosts are
named in the order of their links (DECISIONS D44).
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from replica.commits import Conversations
from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId, PublicKey
from replica.link import (
    Close,
    Entries,
    Fault,
    Frame,
    Link,
    Message,
    Phase,
    Side,
    conversation_of,
)
from replica.log import NOTHING_LOST, Entry, Lost
from replica.refusals import ConversationDeleted
from syncd import queries
from syncd.bringers import Bringers
from syncd.connected import Connected, LinkId
from syncd.disk_quota import DiskQuota, stored_bytes
from syncd.fan_out import FanOut, HubEffects
from syncd.policy import Policy
from syncd.queries import Right
from syncd.shelf import HubShelf


class Hub:
    """The state of a hub: its conversations, deletions and links."""

    def __init__(self, key: PublicKey, policy: Policy) -> None:
        """Start with an empty shelf and no links."""
        self.key = key
        self.policy = policy
        self._shelf = HubShelf(policy.conversations_in_memory_max, policy.logs_bytes_max)
        self._deleted: set[ConversationId] = set()
        self.bringers = Bringers(policy.conversations_per_creator_max)
        self.disk = DiskQuota(policy.disk_creator_bytes_max, policy.disk_bytes_max)
        self.connected = Connected()
        """The links, for reading: `connected.hosts` is what a Welcome names."""
        self._next_link = 1
        self._pending_bytes_most = 0
        """Bytes of the pending entries of all links at most: those that left are still counted."""

    # --- conversations ------------------------------------------------------

    @property
    def shelf(self) -> HubShelf:
        """The conversations, for reading; links extend those in memory."""
        return self._shelf

    def load(
        self, conversation: ConversationId, entries: Iterable[Entry], lost: Lost = NOTHING_LOST
    ) -> HubEffects:
        """Put a stored conversation in memory, and list it to members it was not listed to.

        `entries` and `lost` are all that the store holds, possibly nothing. If two
        loads overlap, the first one counts.
        """
        if conversation in self._shelf:
            return HubEffects()
        return self.hold(Conversation.restore(conversation, entries, lost))

    def hold(self, held: Conversation) -> HubEffects:
        """Put a restored conversation in memory; see `load`."""
        out = FanOut(self.connected, self._shelf, 0.0)
        if held.id in self._shelf:
            return out.build()
        if held.id in self._deleted or not (held.log.entries or held.damage):
            self._shelf.forget(held.id)
        else:
            if not self._shelf.is_known(held.id):
                self.bringers.count(held.creator, held.id)
            self.disk.set_log(held.id, held.creator, stored_bytes(held.log.entries.values()))
            self._shelf.load(held)
            out.list_one(held.id)
        return out.build()

    def index(
        self,
        conversation: ConversationId,
        entries: Iterable[Entry],
        lost: Lost = NOTHING_LOST,
        size_bytes: int = 0,
    ) -> None:
        """Index a stored conversation of this size without holding it in memory.

        Of `entries`, only control entries need bodies.
        """
        if conversation not in self._deleted:
            held = Conversation.restore(conversation, entries, lost)
            self.disk.set_log(conversation, held.creator, size_bytes)
            self.bringers.count(held.creator, held.id)
            self._shelf.index(held)

    def needs_load(
        self, peer: PublicKey, conversation: ConversationId, message: Message | None = None
    ) -> bool:
        """Say whether the conversation is to be loaded before `peer` is answered.

        `message` is the peer's message about it; None for a query.
        """
        brings_genesis = isinstance(message, Entries) and message.brings_genesis
        return self._shelf.needs_load(conversation, peer, brings_genesis=brings_genesis)

    def evict(self, busy: Conversations) -> tuple[ConversationId, ...]:
        """Evict unused conversations beyond the policy's bound; return their ids.

        Conversations stay if they are open on a link or `busy`: their entries are not
        durable yet, or a caller has not used them since their load.
        """
        return self._shelf.evict(lambda one: one in busy or self.connected.is_open(one))

    def disk_refused(self, lost: Conversations, fault: Fault) -> HubEffects:
        """Drop the conversations whose last entries the disk refused.

        They are closed on all links, with the reason, and loaded again before
        any answer about them. Their writers still hold the entries and send
        them again.
        """
        out = FanOut(self.connected, self._shelf, 0.0)
        for conversation in sorted(lost - self._deleted):
            self._shelf.invalidate(conversation)
            out.close(conversation, replace(fault, conversation=conversation))
        return out.build()

    def permitted(
        self, peer: PublicKey, conversation: ConversationId, right: Right = Right.READ
    ) -> Conversation:
        """Return a conversation if `peer` has this right to it.

        Raises ConversationDeleted, ConversationUnknown, NotAllowed.
        """
        gone = self._refusal(conversation)
        if gone is not None:
            raise gone
        self._shelf.touch(conversation)
        return queries.permitted(self._shelf.get(conversation), peer, right)

    # --- deletion -------------------------------------------------------------

    @property
    def deleted(self) -> Set[ConversationId]:
        """The deleted conversations, as they are at any time."""
        return self._deleted

    def delete(self, conversation: ConversationId) -> HubEffects:
        """Delete a conversation for good and close it on its links; it is never admitted again.

        Its bytes on the disk count until they are erased.
        """
        out = FanOut(self.connected, self._shelf, 0.0)
        self._deleted.add(conversation)
        self._shelf.forget(conversation)
        out.close(conversation, Fault.of(ConversationDeleted(), conversation))
        return out.build()

    def undelete(
        self, conversation: ConversationId, deletion: HubEffects, fault: Fault
    ) -> HubEffects:
        """Undo a deletion that could not be made durable; return its effects with the reason.

        The conversation stays closed on its links, and is loaded at the next request.
        """
        self._deleted.discard(conversation)
        self._shelf.invalidate(conversation)
        return replace(deletion, send=tuple((i, _with_fault(f, fault)) for i, f in deletion.send))

    def _refusal(self, conversation: ConversationId | None) -> ConversationDeleted | None:
        """Return the refusal for a deleted conversation, the same for anyone (LINK-9)."""
        return ConversationDeleted() if conversation in self._deleted else None

    # --- links ----------------------------------------------------------------

    @property
    def links(self) -> Mapping[LinkId, Link]:
        """The current links, the oldest first."""
        return self.connected.links

    def connect(self, peer: PublicKey, now: float, *, watches: bool = False) -> LinkId:
        """Add a link of an authenticated key; a watcher gets hints with the entries sent to it."""
        link_id = LinkId(self._next_link)
        self._next_link += 1
        self.connected.add(link_id, self._new_link(peer, now), watches=watches)
        return link_id

    def _new_link(self, peer: PublicKey, now: float, *, is_greeted: bool = False) -> Link:
        return Link(
            Side.HUB,
            key=self.key,
            peer=peer,
            shelf=self._shelf,
            now=now,
            may_create=self.policy.may_create,
            entries_max=self.policy.entries_max,
            is_greeted=is_greeted,
        )

    def disconnect(self, link_id: LinkId) -> None:
        """Remove a link whose stream has ended."""
        link = self.connected.remove(link_id)
        if link is not None:
            link.handle_disconnect()
            link.exchange.channels.clear()  # now, not when the garbage collector comes

    def receive(
        self, link_id: LinkId, message: Message, now: float, frame_bytes: int = 0
    ) -> HubEffects:
        """Receive one message of a link; `frame_bytes` is its encoded size."""
        link = self.links.get(link_id)
        if link is None:
            return HubEffects()
        brought = [e.id for e in message.entries] if isinstance(message, Entries) else ()
        out = FanOut(self.connected, self._shelf, now, brought)
        conversation = conversation_of(message)
        held = self._shelf.get(conversation) if conversation is not None else None
        gone = self._refusal(conversation) or self.bringers.refusal(link.peer, message, held)
        if gone is not None:
            out.send(link_id, Fault.of(gone, conversation))
            return out.build()
        full = self.disk.refusal(link.peer, message, held)
        if full is not None and isinstance(message, Entries):
            for entry_id in message.ids:
                out.send(link_id, Fault.of(full, conversation, entry_id))
            return out.build()
        is_new = conversation is not None and not self._shelf.is_known(conversation)
        if conversation is not None:
            self._shelf.touch(conversation)
        was_ready, pending_before = link.phase is Phase.READY, link.intake.pending_bytes
        effects = link.receive(message, now, frame_bytes)
        if conversation is not None:
            self.connected.note_opened(link_id, conversation)
            if effects.persist:
                self.disk.add(self._shelf[conversation], effects.persist)
            if is_new and self._shelf.is_known(conversation):
                self.bringers.count(link.peer, conversation)
        if not was_ready and link.phase is Phase.READY:
            self.connected.note_greeted(link_id)
            out.welcome(link_id, effects, self.connected.hosts(self.policy.vouches_for))
            out.list_all(link_id)
        else:
            out.add(link_id, effects)
            out.list_more(link_id)
        if isinstance(message, Close) and conversation is not None and link.peer is not None:
            out.list_awaited(conversation, [link.peer])
        self._pending_bytes_most += max(0, link.intake.pending_bytes - pending_before)
        if self._pending_bytes_most > self.policy.pending_bytes_max:
            self._pending_bytes_most = out.bound_pending(self.policy.pending_bytes_max)
        return out.build()

    def push(
        self, peer: PublicKey, message: Entries, now: float
    ) -> tuple[HubEffects, dict[EntryId, Fault | None]]:
        """Append without a link; return per entry its fault, None if it is admitted.

        An admitted entry is durable once the effects are performed. Entries that
        would be pending are refused, since no link's quota covers them.
        """
        before = self._shelf.get(message.conversation)
        gone = (
            self._refusal(message.conversation)
            or self.bringers.refusal(peer, message, before)
            or self.disk.refusal(peer, message, before)
        )
        if gone is not None:
            return HubEffects(), dict.fromkeys(message.ids, Fault.of(gone, message.conversation))
        is_new = not self._shelf.is_known(message.conversation)
        self._shelf.touch(message.conversation)
        out = FanOut(self.connected, self._shelf, now)
        link = self._new_link(peer, now, is_greeted=True)
        effects = link.receive(message, now)
        out.add(None, effects)
        if effects.persist:
            self.disk.add(self._shelf[message.conversation], effects.persist)
        link.handle_disconnect()  # pending entries must not stay without a link's quota
        if is_new and self._shelf.is_known(message.conversation):
            self.bringers.count(peer, message.conversation)
        faults = [f.message for f in effects.send if isinstance(f.message, Fault)]
        held = self._shelf.get(message.conversation)
        return out.build(), queries.outcomes(message.ids, faults, held)

    def handle_deadlines(self, now: float) -> HubEffects:
        """Perform the due checks of every link."""
        out = FanOut(self.connected, self._shelf, now)
        for link_id, link in tuple(self.links.items()):
            out.add(link_id, link.handle_deadline(now))
        return out.build()


def _with_fault(frame: Frame, fault: Fault) -> Frame:
    if not isinstance(frame.message, Close):
        return frame
    return Frame.of(replace(frame.message, fault=fault), "to_client")
