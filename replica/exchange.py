"""The conversations of one link: open, compare, send what the other lacks (spec/04-link §4).

Pure, and private to link.py, which owns greeting, credit and time.
"""

from collections.abc import Callable, Iterable
from enum import Enum

from replica import limits, reconcile
from replica.channel import Channel
from replica.conversation import Conversation, Shelf
from replica.drafts import DraftStream, verify_draft
from replica.effects import (
    Ack,
    Close,
    Draft,
    DraftReceived,
    EffectsBuilder,
    Entries,
    EntriesAcked,
    EntriesAdmitted,
    EntryFailed,
    Fault,
    Ids,
    Message,
    Open,
    Opened,
    StateChanged,
    SyncState,
)
from replica.entry import Entry
from replica.errors import AntiphonError, EntryRefused
from replica.ids import ConversationId, EntryId, Position, PublicKey, Track
from replica.log import Admitted, Duplicate, Pending
from replica.refusals import (
    ConversationUnknown,
    CreateForbidden,
    EntriesMissing,
    LanesDiverged,
    NotAllowed,
    PendingFull,
    QuotaExceeded,
)

ENTRIES_FRAME_BYTES = 256 * 1024
"""Entries frames are cut here, well under the frame limit, so drafts are not held up."""


class Side(Enum):
    """Which end of the link this is."""

    CLIENT = "client"
    HUB = "hub"


class Exchange:
    """All channels of one link."""

    def __init__(
        self,
        side: Side,
        shelf: Shelf,
        *,
        send: Callable[[Message, EffectsBuilder], None],
        may_create: Callable[[PublicKey], bool],
        entries_max: int | None,
    ) -> None:
        """Share the shelf; `send` counts a message against the credit."""
        self.side = side
        self.shelf = shelf
        self.channels: dict[ConversationId, Channel] = {}
        self.pending: dict[EntryId, tuple[ConversationId, int]] = {}
        self._send = send
        self._may_create = may_create
        self._entries_max = entries_max

    # --- client: opening and appending -------------------------------------

    def add_channel(
        self, conversation: ConversationId, acked: Iterable[Position], *, drafts: bool
    ) -> Channel:
        """Add a channel; what `acked` does not cover is taken as not yet sent."""
        channel = Channel(conversation, with_drafts=drafts)
        held = self.shelf.get(conversation)
        if held is not None:
            verdict = reconcile.compare_heads(held.log, acked)
            channel.unacked = set(held.log.covered()) - verdict.held
        self.channels[conversation] = channel
        return channel

    def send_open(
        self, channel: Channel, out: EffectsBuilder, now: float, *, with_heads: bool
    ) -> None:
        """Compare with the hub; a lost answer makes us ask again with heads."""
        log = self._conversation(channel.id).log
        channel.recheck_at = now + limits.RESYNC_S
        channel.received_since_check = False
        heads = log.heads() if with_heads else None
        self._send(Open(channel.id, log.digest, heads, channel.with_drafts), out)

    def append(self, entry: Entry, out: EffectsBuilder, now: float) -> None:
        """Admit an entry of our own, persist it, and offer it to the hub."""
        conversation = self._conversation(entry.conversation)
        verdict = conversation.admit(entry)
        assert not isinstance(verdict, Pending), "our own entries follow what we hold"
        if isinstance(verdict, Admitted):
            out.persist += verdict.entries
            out.deliver.append(EntriesAdmitted(conversation.id, verdict.entries))
            self.offer(conversation.id, [e.id for e in verdict.entries], now)

    def offer(self, conversation: ConversationId, ids: Iterable[EntryId], now: float) -> None:
        """Queue new entries for the peer, where it has the conversation open."""
        channel = self.channels.get(conversation)
        if channel is None:
            return
        new = list(ids)
        if self.side is Side.CLIENT:
            channel.unacked.update(new)
            channel.recheck_at = now + limits.RESYNC_S
        if channel.is_open:
            channel.queue(new)

    def _conversation(self, conversation: ConversationId) -> Conversation:
        held = self.shelf.get(conversation)
        if held is None:
            held = self.shelf[conversation] = Conversation(conversation)
        return held

    # --- hub: Open ----------------------------------------------------------

    def receive_open(self, message: Open, peer: PublicKey | None, out: EffectsBuilder) -> None:
        """Answer with digest or heads, and queue what the client lacks (LINK-11)."""
        held = self.shelf.get(message.conversation)
        if held is None or peer is None or not held.is_member(peer):
            # The same words for "no such conversation" and "not yours".
            self._fault(ConversationUnknown(), message.conversation, out)
            return
        if (
            message.conversation not in self.channels
            and len(self.channels) >= limits.CONVERSATIONS_PER_LINK_MAX
        ):
            self._fault(QuotaExceeded("too many conversations on one link"), held.id, out)
            return
        channel = self.channels.setdefault(message.conversation, Channel(message.conversation))
        channel.with_drafts = message.drafts
        equal = message.digest == held.log.digest
        heads = () if equal else held.log.heads()
        self._send(Opened(held.id, held.log.digest, equal, heads), out)
        channel.is_open = channel.is_open or equal or message.heads is not None
        if message.drafts:
            channel.drafts_due.update(held.drafts)
        if message.heads is not None and not equal:
            self._send_missing(channel, held, message.heads, out)

    def _send_missing(
        self,
        channel: Channel,
        held: Conversation,
        heads: tuple[Position, ...],
        out: EffectsBuilder,
    ) -> None:
        verdict = reconcile.compare_heads(held.log, heads)
        channel.wanted = set(verdict.wanted)
        if not verdict.diverged:
            channel.queue(e.id for e in reconcile.suffix(held.log, verdict.held))
            return
        if self.side is Side.HUB:
            where = verdict.diverged[0]
            detail = f"seq {where.seq} of lane {where.lane.epoch:016x} holds two entries"
            self._send(Fault.of(LanesDiverged(detail), held.id, where.id), out)
        self._send_ids(held, out, answer=False)

    def _send_ids(self, held: Conversation, out: EffectsBuilder, *, answer: bool) -> None:
        ids = sorted(held.log.covered())
        step = limits.IDS_PER_FRAME
        for at in range(0, max(len(ids), 1), step):
            more = at + step < len(ids)
            self._send(Ids(held.id, tuple(ids[at : at + step]), more, answer), out)

    # --- client: Opened -----------------------------------------------------

    def receive_opened(self, message: Opened, out: EffectsBuilder, now: float) -> None:
        """Settle, or send what the hub lacks (LINK-12)."""
        channel = self.channels.get(message.conversation)
        if channel is None:
            return
        held = self._conversation(channel.id)
        if message.digest == held.log.digest:
            channel.wanted.clear()
            acked = channel.mark_acked(held, list(channel.unacked))
            self._note_acked(channel, acked, out)
            channel.is_open, channel.recheck_at, channel.seeded = True, None, False
            self._change(channel, SyncState.SYNCHRONIZED, out)
            return
        if message.equal:
            return  # equal to what we had when we asked; acks will tell the rest
        verdict = reconcile.compare_heads(held.log, message.heads)
        self._note_acked(channel, channel.mark_acked(held, verdict.held), out)
        quiet = channel.state is SyncState.SYNCHRONIZED and not channel.received_since_check
        surprising = quiet and not channel.unacked
        state = SyncState.DESYNCHRONIZED if surprising else SyncState.RECONCILING
        self._change(channel, state, out)
        if not channel.is_open or surprising:
            self.send_open(channel, out, now, with_heads=True)
        channel.is_open = True
        self._send_missing(channel, held, message.heads, out)
        channel.recheck_at = now + limits.RESYNC_S
        self._settle(channel, out)

    def receive_ack(self, message: Ack, out: EffectsBuilder) -> None:
        """Take entries as durable at the hub, with their lane ancestors (LINK-15)."""
        channel = self.channels.get(message.conversation)
        if channel is None:
            return
        held = self._conversation(channel.id)
        self._note_acked(channel, channel.mark_acked(held, (h.id for h in message.heads)), out)
        self._settle(channel, out)

    def _note_acked(self, channel: Channel, acked: list[Position], out: EffectsBuilder) -> None:
        if acked:
            out.deliver.append(EntriesAcked(channel.id, tuple(acked)))
        if not channel.unacked and channel.state is SyncState.SYNCHRONIZED:
            channel.recheck_at = None

    def _change(self, channel: Channel, state: SyncState, out: EffectsBuilder) -> None:
        if channel.state is not state:
            channel.state = state
            out.deliver.append(StateChanged(channel.id, state))

    def _settle(self, channel: Channel, out: EffectsBuilder) -> None:
        if channel.settle():
            channel.recheck_at = None
            out.deliver.append(StateChanged(channel.id, channel.state))

    # --- both: entries --------------------------------------------------------

    def receive_entries(
        self, message: Entries, peer: PublicKey | None, out: EffectsBuilder
    ) -> None:
        """Admit each entry; persist, then ack or deliver; say what is refused (LINK-13)."""
        if self.side is Side.CLIENT and message.conversation not in self.channels:
            return  # a frame that crossed our Close
        try:
            held = self._place_for(message, peer)
        except AntiphonError as error:
            self._fault(error, message.conversation, out)
            return
        known: list[EntryId] = []
        for entry_id, broken_rule in message.refused:
            self._refuse(held.id, entry_id, broken_rule, out)
        allowed = self._allowed(message.entries, held, peer, out)
        for entry in allowed:
            self._admit(held, entry, known, out)
        if not held.log.entries:
            del self.shelf[held.id]
        channel = self.channels.get(held.id)
        if self.side is Side.HUB:
            self._ack(held, known, out)
        elif channel is not None:
            channel.received_since_check = True
            channel.wanted -= held.log.entries.keys()
            self._note_acked(channel, channel.mark_acked(held, known), out)
            self._settle(channel, out)

    def _place_for(self, message: Entries, peer: PublicKey | None) -> Conversation:
        held = self.shelf.get(message.conversation)
        if self.side is Side.CLIENT:
            return held or self._conversation(message.conversation)
        if peer is None:
            raise ConversationUnknown
        if held is None:
            if not any(e.header.conversation is None for e in message.entries):
                raise ConversationUnknown
            if not self._may_create(peer):
                raise CreateForbidden
        return held or self._conversation(message.conversation)

    def _allowed(
        self,
        entries: tuple[Entry, ...],
        held: Conversation,
        peer: PublicKey | None,
        out: EffectsBuilder,
    ) -> list[Entry]:
        """Return what this peer may add: a stranger first shows the log that makes it a member."""
        if self.side is Side.CLIENT or (peer is not None and held.is_member(peer)):
            return list(entries)
        known: list[EntryId] = []
        for entry in entries:
            if entry.header.track in (Track.ALL, Track.MEMBERSHIP):
                self._admit(held, entry, known, out)
        if peer is None or not held.is_member(peer):
            self._fault(ConversationUnknown(), held.id, out)
            return []
        return list(entries)

    def _admit(
        self, held: Conversation, entry: Entry, known: list[EntryId], out: EffectsBuilder
    ) -> None:
        if self._entries_max is not None and len(held.log) >= self._entries_max:
            self._refuse(held.id, entry.id, QuotaExceeded("the conversation is full"), out)
            return
        try:
            verdict = held.admit(entry)
        except EntryRefused as error:
            self._refuse(held.id, entry.id, error, out)
            return
        match verdict:
            case Admitted(entries, refused):
                out.persist += entries
                known += [e.id for e in entries]
                for admitted in entries:
                    self.pending.pop(admitted.id, None)
                for waiting, reason in refused:
                    self.pending.pop(waiting.id, None)
                    self._refuse(held.id, waiting.id, reason, out)
                out.deliver.append(EntriesAdmitted(held.id, entries))
            case Duplicate(filled):
                if filled is not None:
                    out.persist.append(filled)
                if entry.id in held.log.entries:
                    known.append(entry.id)
            case Pending(missing):
                self._charge(held, entry, missing, out)

    def _charge(
        self,
        held: Conversation,
        entry: Entry,
        missing: tuple[EntryId, ...],
        out: EffectsBuilder,
    ) -> None:
        self.pending[entry.id] = (held.id, entry.size_bytes)
        if sum(size for _, size in self.pending.values()) > limits.PENDING_LINK_BYTES_MAX:
            self.drop_pending()
            self._fault(PendingFull(), held.id, out)
        elif missing:
            self._fault(EntriesMissing(missing=missing), held.id, out, entry.id)

    def drop_pending(self) -> None:
        """Forget entries this link delivered that still wait for others."""
        for entry_id, (conversation, _) in self.pending.items():
            held = self.shelf.get(conversation)
            if held is not None:
                held.log.drop_pending([entry_id])
        self.pending.clear()

    def _refuse(
        self,
        conversation: ConversationId,
        entry_id: EntryId,
        error: AntiphonError,
        out: EffectsBuilder,
    ) -> None:
        fault = Fault.of(error, conversation, entry_id)
        self._send(fault, out)
        out.deliver.append(EntryFailed(conversation, entry_id, fault))

    def _ack(self, held: Conversation, known: list[EntryId], out: EffectsBuilder) -> None:
        if known:
            followed = {held.log.entries[i].header.prev for i in known}
            tips = sorted({held.log.position(i) for i in known if i not in followed})
            self._send(Ack(held.id, tuple(tips)), out)

    # --- both: ids, drafts, faults, close ------------------------------------

    def receive_ids(self, message: Ids, out: EffectsBuilder) -> None:
        """Queue what the peer lacks; answer with our ids unless this was the answer."""
        channel = self.channels.get(message.conversation)
        held = self.shelf.get(message.conversation)
        if channel is None or held is None:
            return
        peer_ids = channel.collect_ids(message.ids, more=message.more)
        if peer_ids is None:
            return
        if not message.answer:
            self._send_ids(held, out, answer=True)
        ours = set(held.log.covered())
        channel.queue(e.id for e in held.log.in_send_order(ours - peer_ids))
        channel.is_open = True
        if self.side is Side.CLIENT:
            channel.wanted = peer_ids - held.log.entries.keys()
            self._note_acked(channel, channel.mark_acked(held, peer_ids & ours), out)
            self._settle(channel, out)

    def receive_draft(self, message: Draft, peer: PublicKey | None, out: EffectsBuilder) -> None:
        """Check a draft against the sealed request's host, keep it, pass it on (LINK-17)."""
        held = self.shelf.get(message.conversation)
        if held is None:
            return
        seal_id = held.order.seal_of.get(message.request)
        node = held.order.nodes.get(seal_id) if seal_id is not None else None
        if node is None or node.generation is not None:
            return  # not sealed here yet, or over: the log has or will have the rest
        if self.side is Side.HUB and peer != node.author:
            self._fault(NotAllowed("only the request's host streams its answer"), held.id, out)
            return
        try:
            verify_draft(message, PublicKey(node.author))
        except EntryRefused as error:
            self._fault(error, held.id, out, message.request)
            return
        stream = held.drafts.get(message.request)
        if stream is None or stream.run != message.run:
            stream = DraftStream(held.id, message.request, message.run)
            held.drafts[message.request] = stream
        if stream.receive(message):
            out.deliver.append(DraftReceived(message))

    def receive_fault(self, message: Fault, out: EffectsBuilder, now: float) -> None:
        """Send what the peer misses; seed a hub that lost the conversation; else report."""
        if message.conversation is None:
            return
        channel = self.channels.get(message.conversation)
        held = self.shelf.get(message.conversation)
        if channel is None:
            return
        match message.reason:
            case EntriesMissing.reason if held is not None:
                ours = [i for i in message.missing if i in held.log.entries]
                channel.queue(e.id for e in held.log.in_send_order(ours))
            case ConversationUnknown.reason if self.side is Side.CLIENT:
                self._seed(channel, message, out, now)
            case LanesDiverged.reason:
                self._change(channel, SyncState.RECONCILING, out)
                out.deliver.append(EntryFailed(channel.id, message.entry, message))
            case _:
                if message.entry is not None:
                    # Refused for good: sending it again would be refused again.
                    channel.unacked.discard(message.entry)
                out.deliver.append(EntryFailed(channel.id, message.entry, message))

    def _seed(self, channel: Channel, fault: Fault, out: EffectsBuilder, now: float) -> None:
        """Give a hub that does not know the conversation all of it, from the genesis."""
        held = self._conversation(channel.id)
        if channel.seeded or held.log.genesis is None:
            channel.recheck_at = None
            self._change(channel, SyncState.DENIED, out)
            out.deliver.append(EntryFailed(channel.id, None, fault))
            return
        channel.seeded, channel.is_open = True, True
        channel.unacked = set(held.log.covered())
        self._change(channel, SyncState.RECONCILING, out)
        channel.queue(e.id for e in reconcile.suffix(held.log, ()))
        channel.recheck_at = now

    def receive_close(
        self, conversation: ConversationId, fault: Fault | None, out: EffectsBuilder
    ) -> None:
        """Take the peer's leave of one conversation."""
        if self.channels.pop(conversation, None) is not None:
            out.deliver.append(StateChanged(conversation, SyncState.OFFLINE))
            if fault is not None:
                out.deliver.append(EntryFailed(conversation, None, fault))

    def _fault(
        self,
        error: AntiphonError,
        conversation: ConversationId,
        out: EffectsBuilder,
        entry_id: EntryId | None = None,
    ) -> None:
        self._send(Fault.of(error, conversation, entry_id), out)

    # --- sending --------------------------------------------------------------

    def pump(
        self, peer: PublicKey | None, out: EffectsBuilder, *, may_send: Callable[[], bool]
    ) -> None:
        """Turn queued ids and due drafts into frames while there is credit."""
        for channel in tuple(self.channels.values()):
            held = self.shelf.get(channel.id)
            if held is None or not (channel.outgoing or channel.drafts_due):
                continue
            # Membership is checked at every delivery, not once per ticket.
            if self.side is Side.HUB and (peer is None or not held.is_member(peer)):
                del self.channels[channel.id]
                self._send(Close(channel.id, Fault.of(ConversationUnknown(), channel.id)), out)
                continue
            while channel.outgoing and may_send():
                self._send(Entries(held.id, self._next_entries(channel, held)), out)
            if not channel.outgoing and may_send():
                for draft in channel.due_drafts(held):
                    self._send(draft, out)

    def _next_entries(self, channel: Channel, held: Conversation) -> tuple[Entry, ...]:
        taken: list[Entry] = []
        size = 0
        while channel.outgoing and size < ENTRIES_FRAME_BYTES:
            entry = held.log.entries[channel.take()]
            taken.append(entry)
            size += entry.size_bytes
        return tuple(taken)
