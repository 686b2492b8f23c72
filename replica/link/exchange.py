"""The conversations of one link: open, compare, send what the other lacks (spec/04-link §4).

Pure, and private to link.py, which owns greeting, credit and time.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from itertools import chain, islice

from replica import limits
from replica.conversation import Conversation, Draft, Shelf
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.link import comparison as reconcile
from replica.link.channel import Channel
from replica.link.draft_intake import take_draft
from replica.link.effects import EffectsBuilder
from replica.link.events import (
    DraftReceived,
    EntriesAcked,
    EntriesAdmitted,
    EntryFailed,
    StateChanged,
    SyncState,
)
from replica.link.intake import Intake
from replica.link.messages import Ack, Close, Entries, Fault, Ids, Message, Open, Opened
from replica.link.seeding import seed
from replica.log import Admitted, Entry, Pending
from replica.refusals import (
    ConversationUnknown,
    EntriesMissing,
    LanesDiverged,
    NotAllowed,
    QuotaExceeded,
)

ASKED_MAX = 63
"""Lost entries and missing bodies that one Open asks for; as many as a fault can name."""

BUSY_CHECKS_MAX = 3
"""Comparisons spoilt by entries on their way, before heads are shown all the same."""


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
        self.intake = Intake(
            shelf,
            is_hub=side is Side.HUB,
            send=send,
            may_create=may_create,
            entries_max=entries_max,
        )
        self._send = send

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
        """Compare with the hub; a lost answer makes us ask again."""
        log = self._conversation(channel.id).log
        channel.recheck_at = now + limits.RESYNC_S
        channel.check_at = None
        channel.received_since_check = False
        channel.asked_with_heads = with_heads
        heads = log.heads() if with_heads else None
        self._send(Open(channel.id, log.digest, heads, channel.with_drafts), out)

    def append(self, entry: Entry, out: EffectsBuilder, now: float) -> None:
        """Admit an entry of our own, persist it, and offer it to the hub. Raises EntryRefused."""
        conversation = self._conversation(entry.conversation)
        verdict = conversation.admit(entry)
        if isinstance(verdict, Pending):
            conversation.log.admission.drop([entry.id])
            raise NotAllowed("the author is no member here, or the entry follows what is not held")
        if isinstance(verdict, Admitted):
            out.persist += verdict.unstored
            out.deliver.append(EntriesAdmitted(conversation.id, verdict.entries))
            self.offer(conversation.id, [e.id for e in verdict.entries], now)

    def offer(self, conversation: ConversationId, ids: Iterable[EntryId], now: float) -> None:
        """Queue new entries for the peer, where it has the conversation open."""
        channel = self.channels.get(conversation)
        if channel is None:
            return
        # ORD-13: what lies behind a cut is nobody's business but its holder's.
        held = self.shelf.get(conversation)
        if held is not None and held.is_blocked:
            return  # LINK-34
        new = list(ids) if held is None else held.log.offered(ids)
        if self.side is Side.CLIENT:
            channel.unacked.update(new)
            if channel.recheck_at is None:
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
        # In the middle of a live exchange a digest alone asks no more than whether all is well.
        is_check = channel.is_open and message.heads is None
        heads = None if equal or is_check else held.log.heads()
        self._send(Opened(held.id, held.log.digest, equal, heads), out)
        if not is_check:
            self._ask_missing(held, out)
        channel.is_open = channel.is_open or equal or message.heads is not None
        if message.drafts:
            if message.heads is not None:
                channel.forget_drafts()
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
            self._queue(channel, held, reconcile.suffix(held.log, verdict.held))
            return
        if self.side is Side.HUB:
            where = verdict.diverged[0]
            detail = f"seq {where.seq} of lane {where.lane.epoch:016x} holds two entries"
            self._send(Fault.of(LanesDiverged(detail), held.id, where.id), out)
        channel.queue_ids(held, answer=False)

    def _queue(self, channel: Channel, held: Conversation, entries: Iterable[Entry]) -> None:
        """Queue what the peer lacks; a client waits for the acks of all of it."""
        if held.is_blocked:
            return  # LINK-34: what a lost cut leaves out would go along
        ids = [entry.id for entry in entries if entry.id not in channel.refused]
        if self.side is Side.CLIENT:
            channel.unacked.update(ids)
        channel.queue(ids)

    def _ask_missing(self, held: Conversation, out: EffectsBuilder) -> None:
        """Name what the store lost, and entries without bodies: digests tell of neither (LINK-14).

        For what a store lost need not be covered, and other holders' digests say nothing of it.
        """
        bodyless = (e.id for e in held.log.entries.values() if e.body is None)
        if missing := list(islice(chain(sorted(held.damage.missing), bodyless), ASKED_MAX)):
            self._send(Fault.of(EntriesMissing(missing=missing), held.id), out)

    # --- client: Opened -----------------------------------------------------

    def receive_opened(self, message: Opened, out: EffectsBuilder, now: float) -> None:
        """Settle, or send what the hub lacks (LINK-12)."""
        channel = self.channels.get(message.conversation)
        if channel is None:
            return
        held = self._conversation(channel.id)
        channel.seedings = 0
        if not channel.is_open:
            self._ask_missing(held, out)
        if message.digest == held.log.digest:
            channel.wanted.clear()
            channel.refused.clear()
            channel.busy_checks = 0
            acked = channel.mark_all_acked(held)
            channel.is_open, channel.recheck_at = True, None
            self._note_acked(channel, acked, out)
            self._change(channel, SyncState.SYNCHRONIZED, out)
            return
        if message.equal and channel.is_open:
            return  # equal to what we had when we asked; acks will tell the rest
        self._receive_difference(channel, held, message, out, now)

    def _receive_difference(
        self,
        channel: Channel,
        held: Conversation,
        message: Opened,
        out: EffectsBuilder,
        now: float,
    ) -> None:
        synchronized = channel.state is SyncState.SYNCHRONIZED
        explained = channel.received_since_check or channel.unacked or channel.refused
        surprising = synchronized and not explained
        if synchronized and not surprising and self._check_later(channel, message, now):
            return
        acked = channel.mark_acked(held, (head.id for head in message.heads or ()))
        self._note_acked(channel, acked, out)
        state = SyncState.DESYNCHRONIZED if surprising else SyncState.RECONCILING
        self._change(channel, state, out)
        if message.heads is None or not channel.asked_with_heads:
            self.send_open(channel, out, now, with_heads=True)
        channel.is_open = True
        channel.busy_checks = 0
        channel.recheck_at = now + limits.RESYNC_S
        if message.heads is not None:
            self._send_missing(channel, held, message.heads, out)
            self._settle(channel, out)

    def _check_later(self, channel: Channel, message: Opened, now: float) -> bool:
        """Put a comparison off that entries on their way may have spoilt, a few times in a row."""
        if message.heads is not None or channel.busy_checks >= BUSY_CHECKS_MAX:
            return False
        channel.busy_checks += 1
        channel.check_at = now + limits.RESYNC_S
        if not channel.unacked:
            channel.recheck_at = None
        return True

    def recheck(self, channel: Channel, out: EffectsBuilder, now: float) -> None:
        """Start over from what is true now: what was sent and not acked may be lost."""
        channel.in_flight.clear()
        with_heads = channel.state is not SyncState.DENIED
        self.send_open(channel, out, now, with_heads=with_heads)

    def receive_ack(self, message: Ack, out: EffectsBuilder) -> None:
        """Take entries as durable at the hub, with their lane ancestors (LINK-15)."""
        channel = self.channels.get(message.conversation)
        if channel is None:
            return
        held = self._conversation(channel.id)
        self._note_acked(channel, channel.mark_acked(held, message.ids), out)
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
        self, message: Entries, peer: PublicKey | None, out: EffectsBuilder, now: float
    ) -> None:
        """Take entries in; ack them (hub), or take them as acks (client) (LINK-13)."""
        channel = self.channels.get(message.conversation)
        if self.side is Side.CLIENT and channel is None:
            return  # a frame that crossed our Close
        before = self.shelf.get(message.conversation)
        was_blocked = before is not None and before.is_blocked
        known = self.intake.receive(message, peer, out)
        held = self.shelf.get(message.conversation)
        if held is None:
            return
        if self.side is Side.HUB:
            self._ack(held, known, out)
        elif channel is not None:
            channel.received_since_check = True
            channel.wanted -= held.log.entries.keys()
            self._note_acked(channel, channel.mark_acked(held, known), out)
            self._offer_freed(held, message, known, now)
            if was_blocked and not held.is_blocked:
                self.send_open(channel, out, now, with_heads=True)
            self._settle(channel, out)

    def _offer_freed(
        self, held: Conversation, message: Entries, known: list[EntryId], now: float
    ) -> None:
        """Offer what our store held all along and the hub's entries have set free (client)."""
        brought = {*message.ids, *self.intake.pending}
        self.offer(held.id, [i for i in known if i not in brought], now)

    def _ack(self, held: Conversation, known: list[EntryId], out: EffectsBuilder) -> None:
        if known:
            followed = {held.log.entries[i].header.prev for i in known}
            tips = sorted(set(known) - followed)
            self._send(Ack(held.id, tuple(tips)), out)

    # --- both: ids, drafts, faults, close ------------------------------------

    def receive_ids(
        self, message: Ids, peer: PublicKey | None, out: EffectsBuilder, now: float
    ) -> None:
        """Queue what the peer lacks; answer with our ids unless this was the answer."""
        channel = self.channels.get(message.conversation)
        held = self.shelf.get(message.conversation)
        if channel is None or held is None or not self._may_read(held, peer):
            return
        peer_ids = channel.collect_ids(message.ids, more=message.more)
        if peer_ids is None:
            return
        if not message.answer:
            channel.queue_ids(held, answer=True)
        ours = set(held.log.covered())
        if self.side is Side.CLIENT:
            channel.wanted = peer_ids - held.log.entries.keys()
            self._note_acked(channel, channel.mark_acked(held, peer_ids & channel.unacked), out)
        self._queue(channel, held, held.log.in_send_order(ours - peer_ids))
        channel.is_open = True
        # Also where it believed itself synchronized: an ack that gets lost is asked for.
        if channel.unacked and channel.recheck_at is None:
            channel.recheck_at = now + limits.RESYNC_S
        self._settle(channel, out)

    def _may_read(self, held: Conversation, peer: PublicKey | None) -> bool:
        return self.side is Side.CLIENT or (peer is not None and held.is_member(peer))

    def receive_draft(self, message: Draft, peer: PublicKey | None, out: EffectsBuilder) -> None:
        """Keep a draft that is as it must be, and pass it on."""
        held = self.shelf.get(message.conversation)
        if held is None or not self._may_read(held, peer):
            return
        try:
            is_news = take_draft(held, message, peer if self.side is Side.HUB else None)
        except AntiphonError as error:
            self._fault(error, held.id, out, message.request)
            return
        if is_news:
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
                whole = not held.is_blocked  # LINK-34
                ours = [i for i in message.missing if i in held.log.entries and whole]
                channel.in_flight.difference_update(ours)
                channel.queue(e.id for e in held.log.in_send_order(ours))
            case ConversationUnknown.reason if self.side is Side.CLIENT:
                self._seed(channel, message, out, now)
            case LanesDiverged.reason:
                self._change(channel, SyncState.RECONCILING, out)
                out.deliver.append(EntryFailed(channel.id, message.entry, message))
            case _:
                if message.entry is not None:
                    # Refused for good: sending it again would be refused again.
                    channel.refuse(message.entry)
                elif not message.retryable and self.side is Side.CLIENT:
                    self._deny(channel, message, out, now)
                    return
                out.deliver.append(EntryFailed(channel.id, message.entry, message))

    def _seed(self, channel: Channel, fault: Fault, out: EffectsBuilder, now: float) -> None:
        """Give a hub that does not know the conversation all of it (LINK-10)."""
        if fault.entry is not None:
            return  # it did not take our entries; the Open that follows them tells why
        if seed(channel, self._conversation(channel.id), now):
            self._change(channel, SyncState.RECONCILING, out)
        else:
            self._deny(channel, fault, out, now)

    def _deny(self, channel: Channel, fault: Fault, out: EffectsBuilder, now: float) -> None:
        """Believe the hub; ask again now and then, since a grant may come later."""
        channel.recheck_at = now + limits.DENIED_RECHECK_S
        channel.is_open = False
        channel.seedings = min(channel.seedings, 1)  # from now on it sees the membership only
        if channel.state is not SyncState.DENIED:
            self._change(channel, SyncState.DENIED, out)
            out.deliver.append(EntryFailed(channel.id, None, fault))

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
        """Send what is due of each conversation while there is credit."""
        for channel in tuple(self.channels.values()):
            held = self.shelf.get(channel.id)
            if held is None or not channel.is_due:
                continue
            # Membership is checked at every delivery, not once per ticket.
            if self.side is Side.HUB and (peer is None or not held.is_member(peer)):
                del self.channels[channel.id]
                self._send(Close(channel.id, Fault.of(ConversationUnknown(), channel.id)), out)
                continue
            is_client = self.side is Side.CLIENT
            while may_send() and (frame := channel.next_frame(held, awaits_acks=is_client)):
                self._send(frame, out)
