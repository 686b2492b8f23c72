"""The hub: links and conversations in, effects out (spec/04-link §7).

Pure. One Link per connected replica, all over one shelf. The driver performs
HubEffects strictly in the order they were returned. It may combine several:
first everything to persist, in one transaction, then everything to send.
This order makes acked and forwarded entries durable. A deleted conversation
leaves a tombstone and is refused to anyone (DECISIONS D42, D43). Hosts are
named in the order of their links (DECISIONS D44).
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace

from replica.commits import Conversations
from replica.conversation import Conversation
from replica.ids import ConversationId, PublicKey
from replica.link import (
    Close,
    Effects,
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
from syncd.bounds import Bringers, DiskQuota, disk_bytes
from syncd.calls import Pushing, Right, queries
from syncd.links import Connected, FanOut, HubEffects, LinkId
from syncd.policy import Policy
from syncd.shelves import HubShelf, Known


class Hub:
    """The state of a hub: its conversations, deletions and links."""

    def __init__(self, key: PublicKey, policy: Policy) -> None:
        """Start with an empty shelf and no links."""
        self.key = key
        self.policy = policy
        self.shelf = HubShelf(policy.conversations_in_memory_max, policy.logs_bytes_max)
        """The conversations, for reading; links extend those in memory."""
        self._deleted: set[ConversationId] = set()
        self.bringers = Bringers(policy.conversations_per_creator_max, policy.conversations_max)
        self.disk = DiskQuota(policy.disk_creator_bytes_max, policy.disk_bytes_max)
        self.connected = Connected()
        """The links, for reading: `connected.hosts` is what a Welcome names."""
        self._next_link = 1
        self._pending_bytes_most = 0
        """Bytes of the pending entries of all links at most: those that left are still counted."""

    # --- conversations ------------------------------------------------------

    def load(
        self, conversation: ConversationId, entries: Iterable[Entry], lost: Lost = NOTHING_LOST
    ) -> HubEffects:
        """Put a stored conversation in memory, and list it to members it was not listed to.

        `entries` and `lost` are all that the store holds, possibly nothing. If two
        loads overlap, the first one counts.
        """
        if conversation in self.shelf:
            return HubEffects()
        return self.hold(Conversation.restore(conversation, entries, lost))

    def hold(self, held: Conversation) -> HubEffects:
        """Put a restored conversation in memory; see `load`."""
        out = FanOut(self.connected, self.shelf, 0.0)
        if held.id in self.shelf:
            return out.build()
        if held.id in self.deleted or not (held.log.entries or held.damage):
            self.shelf.forget(held.id)
        else:
            if not self.shelf.is_known(held.id):
                self.bringers.count(held.creator, held.id)
            stored = disk_bytes(len(held.log), held.log.size_bytes)
            self.disk.set_log(held.id, held.creator, stored)
            self.shelf.load(held)
            out.list_one(held.id)
        return out.build()

    def index(
        self,
        conversation: ConversationId,
        known: Known | None,
        creator: PublicKey | None,
        size_bytes: int = 0,
    ) -> None:
        """Index a stored conversation of this size without holding it in memory.

        `known` is its record; with None it is read once somebody asks for it.
        """
        if conversation not in self.deleted:
            self.disk.set_log(conversation, creator, size_bytes)
            self.bringers.count(creator, conversation)
            self.shelf.apart.add(conversation, known)

    def needs_load(
        self, peer: PublicKey, conversation: ConversationId, message: Message | None = None
    ) -> bool:
        """Say whether the conversation is to be loaded before `peer` is answered.

        `message` is the peer's message about it; None for a query.
        """
        if not (self.shelf.apart.all or self.shelf.folding.held):
            return False
        brings_genesis = isinstance(message, Entries) and message.brings_genesis
        return self.shelf.needs_load(conversation, peer, brings_genesis=brings_genesis)

    def evict(self, busy: Conversations) -> tuple[ConversationId, ...]:
        """Evict unused conversations beyond the policy's bound; return their ids.

        Conversations stay if they are open on a link or `busy`: their entries are not
        durable yet, or a caller has not used them since their load.
        """
        return self.shelf.evict(lambda one: one in busy or self.connected.is_open(one))

    def disk_refused(self, lost: Conversations, fault: Fault) -> HubEffects:
        """Drop the conversations whose last entries the disk refused.

        They are closed on all links, with the reason, and loaded again before
        any answer about them. Their writers still hold the entries and send
        them again.
        """
        out = FanOut(self.connected, self.shelf, 0.0)
        for conversation in sorted(lost - self._deleted):
            self.shelf.invalidate(conversation)
            out.close(conversation, replace(fault, conversation=conversation))
        return out.build()

    def permitted(
        self, peer: PublicKey, conversation: ConversationId, right: Right = Right.READ
    ) -> Conversation:
        """Return a conversation if `peer` has this right to it.

        Raises ConversationDeleted, ConversationUnknown, NotAllowed.
        """
        if conversation in self.deleted:
            raise ConversationDeleted
        self.shelf.touch(conversation)
        return queries.permitted(self.shelf.get(conversation), peer, right)

    # --- deletion -------------------------------------------------------------

    @property
    def deleted(self) -> Set[ConversationId]:
        """The deleted conversations, as they are at any time."""
        return self._deleted

    def delete(self, conversation: ConversationId) -> HubEffects:
        """Delete a conversation for good and close it on its links; it is never admitted again.

        Its bytes on the disk count until it is released from `disk`.
        """
        out = FanOut(self.connected, self.shelf, 0.0)
        self._deleted.add(conversation)
        self.shelf.forget(conversation)
        out.close(conversation, Fault.of(ConversationDeleted(), conversation))
        return out.build()

    def undelete(
        self, conversation: ConversationId, deletion: HubEffects, fault: Fault
    ) -> HubEffects:
        """Undo a deletion that could not be made durable; return its effects with the reason.

        The conversation stays closed on its links, and is loaded at the next request.
        """
        self._deleted.discard(conversation)
        self.shelf.invalidate(conversation)
        return replace(deletion, send=tuple((i, with_fault(f, fault)) for i, f in deletion.send))

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
        out = FanOut(self.connected, self.shelf, now, brought)
        refusals = self._refusals(link.peer, message)
        if refusals:
            for fault in refusals:
                out.send(link_id, fault)
            return out.build()
        conversation = conversation_of(message)
        self.connected.catch_up_all(link_id, now)
        was_ready, pending_before = link.phase is Phase.READY, link.intake.pending_bytes
        effects = self._receive(link.peer, message, lambda: link.receive(message, now, frame_bytes))
        if link_id not in self.links or link.phase is Phase.CLOSED:  # it ended, maybe in a pause
            link.intake.drop_pending()
        if conversation is not None:
            self.connected.note_opened(link_id, conversation)
        if not was_ready and link.phase is Phase.READY:
            self.connected.note_greeted(link_id)
            out.welcome(link_id, effects, self.connected.hosts(self.policy.vouches_for))
            out.begin_list(link_id)
        else:
            out.add(link_id, effects)
        out.list_more(link_id)
        if isinstance(message, Close) and conversation is not None and link.peer is not None:
            out.list_awaited(conversation, [link.peer])
        self._pending_bytes_most += max(0, link.intake.pending_bytes - pending_before)
        if self._pending_bytes_most > self.policy.pending_bytes_max:
            self._pending_bytes_most = out.bound_pending(self.policy.pending_bytes_max)
        return out.build()

    def begin_push(self, peer: PublicKey) -> Pushing:
        """Begin a call that appends without a link."""
        return Pushing(peer, self.policy, self._refusals, self._receive, self.connected, self.shelf)

    def _refusals(self, peer: PublicKey | None, message: Message) -> tuple[Fault, ...]:
        """Return the faults of a message that no link may receive: one per entry for a full disk.

        A deletion is told to anyone alike (LINK-9).
        """
        conversation = conversation_of(message)
        held = self.shelf.get(conversation) if conversation is not None else None
        if conversation in self.deleted:
            return (Fault.of(ConversationDeleted(), conversation),)
        too_many = self.bringers.refusal(peer, message, held)
        if too_many is not None:
            return (Fault.of(too_many, conversation),)
        full = self.disk.refusal(peer, message, held)
        if full is None or not isinstance(message, Entries):
            return ()
        return tuple(Fault.of(full, conversation, entry_id) for entry_id in message.ids)

    def _receive(
        self, peer: PublicKey | None, message: Message, receive: Callable[[], Effects]
    ) -> Effects:
        """Receive a message of a key; count what it stores, and a conversation that it begins."""
        conversation = conversation_of(message)
        if conversation is None:
            return receive()
        brings = isinstance(message, Entries) and message.brings_genesis
        is_new = brings and not self.shelf.is_known(conversation)
        if is_new:  # before its fold may pause, so that it counts for what the key brings meanwhile
            self.bringers.begin(peer, conversation)
        self.shelf.touch(conversation)
        effects = receive()
        if effects.persist:
            self.disk.add(self.shelf[conversation], effects.persist)
        if is_new and not self.shelf.is_known(conversation):
            self.bringers.take_back(conversation)
        return effects

    def handle_deadlines(self, now: float) -> HubEffects:
        """Perform the due checks of every link."""
        out = FanOut(self.connected, self.shelf, now)
        for link_id, link in tuple(self.links.items()):
            self.connected.catch_up_all(link_id, now)
            out.add(link_id, link.handle_deadline(now))
        return out.build()


def with_fault(frame: Frame, fault: Fault) -> Frame:
    """Return a frame; a Close with another reason, since what it was sent for is undone."""
    if not isinstance(frame.message, Close):
        return frame
    return Frame.of(replace(frame.message, fault=fault), "to_client")
