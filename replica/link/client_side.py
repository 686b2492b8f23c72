"""The client side of a link's conversations (spec/04-link §5).

Pure, and private to link.py (DECISIONS D32). A client opens conversations, records
the hub's acks, and compares again if messages may have been lost.
"""

from collections.abc import Iterable, Sequence

from replica import limits
from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.link import comparison
from replica.link.channel import Channel, offer_again
from replica.link.effects import EffectsBuilder, conversation_of
from replica.link.events import Compared, EntriesAdmitted, SyncState
from replica.link.exchange import Exchange, Side
from replica.link.messages import Ack, Entries, Fault, Message, Open, Opened
from replica.link.refusal import cause_of, deny, refuses_conversation
from replica.link.seed import seed
from replica.link.sent_opens import SentOpen
from replica.log import Admitted, Entry, Pending
from replica.refusals import ConversationUnknown, NotAllowed

BUSY_CHECKS_MAX = 3
"""Comparisons made inconclusive by entries in flight, before heads are sent anyway."""


class ClientSide(Exchange):
    """The channels of one link at the client side."""

    side = Side.CLIENT

    def _conversation(self, conversation: ConversationId) -> Conversation:
        held = self.shelf.get(conversation)
        if held is None:
            held = Conversation(conversation)
            self.shelf.add(held)
        return held

    def receive(
        self, message: Message, peer: PublicKey | None, out: EffectsBuilder, now: float
    ) -> None:
        """Receive a message about a conversation; the link has checked its direction."""
        match message:
            case Opened():
                self._receive_opened(message, out, now)
            case Entries():
                self.receive_entries(message, peer, out, now)
            case Ack():
                self.receive_ack(message, out)
            case Fault() if self._refuses_conversation(message):
                self._receive_refusal(message, out, now)
            case _:
                super().receive(message, peer, out, now)
        about = conversation_of(message)
        channel = self.channels.get(about) if about is not None else None
        if channel is not None and channel.opens.is_due:
            self.compare(channel, out, now)

    # --- opening and appending ------------------------------------------------------

    def add_channel(
        self, conversation: ConversationId, acked: Iterable[Position], *, drafts: bool
    ) -> Channel:
        """Add a channel; entries not covered by `acked` count as unacked."""
        channel = Channel(conversation, with_drafts=drafts)
        held = self.shelf.get(conversation)
        if held is not None:
            verdict = comparison.compare_heads(held.log, acked)
            channel.unacked = set(held.log.covered()) - verdict.held
        self.channels[conversation] = channel
        return channel

    def send_open(
        self,
        channel: Channel,
        out: EffectsBuilder,
        now: float,
        *,
        with_heads: bool,
        is_asked: bool = False,
    ) -> None:
        """Send an Open, and schedule another one in case the answer is lost."""
        log = self._conversation(channel.id).log
        self.channels.touch(channel.id)
        channel.recheck(now + limits.RESYNC_S)
        channel.check_at = None
        channel.received_since_check = False
        self._opens += 1
        channel.opens.add(SentOpen(self._opens, log.digest, with_heads, now, is_asked))
        channel.lists_due = {False, True}
        heads = comparison.sendable_heads(log) if with_heads else None
        self._send(Open(channel.id, log.digest, heads, channel.with_drafts, self._opens), out)

    def append(self, entry: Entry, out: EffectsBuilder, now: float, *, send: bool = True) -> None:
        """Admit an entry of our own, persist it, and offer it to the hub. Raises EntryRefused."""
        conversation = self._conversation(entry.conversation)
        verdict = conversation.admit(entry)
        if isinstance(verdict, Pending):
            conversation.log.admission.drop([entry.id])
            raise NotAllowed("the author is no member here, or the entry follows what is not held")
        if isinstance(verdict, Admitted):
            out.persist += verdict.unstored
            out.deliver.append(EntriesAdmitted(conversation.id, verdict.entries))
            self.offer(conversation.id, [e.id for e in verdict.entries], now, send=send)

    def offer(
        self, conversation: ConversationId, ids: Sequence[EntryId], now: float, *, send: bool = True
    ) -> None:
        """Queue new entries for the hub if it has the conversation open.

        Without `send` another link of this replica sends them; this one does if the next
        comparison finds that the hub lacks them.
        """
        channel = self.channels.get(conversation)
        if channel is None:
            return
        # ORD-13: entries behind a cut are not synced.
        held = self.shelf.get(conversation)
        if held is not None and held.is_blocked:
            return  # LINK-34
        new = ids if held is None else held.log.offered(ids)
        if not new:
            return
        # Refused while they were uncovered: those that these made covered.
        offer_again(channel, set(new) - set(ids))
        channel.unacked.update(new)
        if channel.recheck_at is None:
            channel.recheck(now + limits.RESYNC_S, channel.unacked)
        if channel.is_open and send:
            channel.queue(new)

    def _queue_missing(self, channel: Channel, entries: comparison.Backlog) -> None:
        ids = [entry.id for entry in entries if entry.id not in channel.refused]
        channel.unacked.update(ids)
        channel.queue(ids)

    # --- comparing ------------------------------------------------------------------

    def compare(self, channel: Channel, out: EffectsBuilder, now: float) -> None:
        """Compare digests from now on: at once, or as soon as an answer can prove something.

        One such comparison is on its way at a time, and the next heartbeat's is as before.
        """
        channel.opens.is_due, check_at = True, channel.check_at
        is_settled = channel.state is SyncState.SYNCHRONIZED and not channel.unacked
        if is_settled and not channel.opens.are_awaited(now):
            self.send_open(channel, out, now, with_heads=False, is_asked=True)
            channel.check_at = check_at

    def _receive_opened(self, message: Opened, out: EffectsBuilder, now: float) -> None:
        """Receive the answer to an Open, and say so unless it leads to another one."""
        channel = self.channels.get(message.conversation)
        sent = channel.opens.answered_by(message) if channel is not None else None
        if channel is None or sent is None:
            return
        channel.seedings = 0
        if len(channel.opens) and not message.equal and message.heads is None:
            return  # a later one compares what is here now
        last = channel.opens.last_number
        self._compare_digests(channel, sent, message, out, now)
        if channel.opens.last_number == last:
            out.deliver.append(Compared(channel.id, sent.at))

    def _compare_digests(
        self, channel: Channel, sent: SentOpen, message: Opened, out: EffectsBuilder, now: float
    ) -> None:
        """Become synchronized, or send the entries that the hub lacks (LINK-12)."""
        held = self._conversation(channel.id)
        if not channel.is_open:
            self._ask_missing(held, out)
        if message.digest == held.log.digest:
            if not (channel.is_open or message.equal or sent.with_heads):
                # Entries in flight made the logs equal; the hub has not opened its side.
                self.send_open(channel, out, now, with_heads=False)
                return
            channel.wanted.clear()
            channel.refused.clear()
            channel.busy_checks = 0
            acked = channel.mark_all_acked(held)
            channel.is_open, channel.recheck_at = True, None
            channel.deliver_acked(acked, out)
            channel.change(SyncState.SYNCHRONIZED, out)
            return
        if message.equal and channel.is_open:
            return  # equal to our log when we asked; acks cover the rest
        self._receive_difference(channel, sent, message, out, now)

    def _receive_difference(
        self,
        channel: Channel,
        sent: SentOpen,
        message: Opened,
        out: EffectsBuilder,
        now: float,
    ) -> None:
        held, synchronized = self._conversation(channel.id), channel.state is SyncState.SYNCHRONIZED
        explained = channel.received_since_check or channel.unacked or channel.refused
        surprising = synchronized and not explained
        if synchronized and not surprising and _check_later(channel, sent, message, now):
            return
        acked = channel.mark_acked(held, (head.id for head in message.heads or ()))
        channel.deliver_acked(acked, out)
        state = SyncState.DESYNCHRONIZED if surprising else SyncState.RECONCILING
        channel.change(state, out)
        if message.heads == () or comparison.sendable_heads(held.log) is None:  # REC-6
            channel.queue_ids(held, answer=bool(message.heads))
        elif message.heads is None or not sent.with_heads:
            self.send_open(channel, out, now, with_heads=True)
        channel.is_open = True
        channel.busy_checks = 0
        channel.recheck(now + limits.RESYNC_S)
        if message.heads:
            self._send_missing(channel, held, message.heads)
            channel.settle(out)

    # --- deadlines ------------------------------------------------------------------

    def verify(self, channels: Iterable[Channel], out: EffectsBuilder, now: float) -> None:
        """Compare the digests of synchronized conversations (LINK-12)."""
        for channel in channels:
            channel.check_at = None
            if channel.state is SyncState.SYNCHRONIZED and not channel.unacked:
                self.send_open(channel, out, now, with_heads=False)

    def _compare_again(self, channel: Channel, out: EffectsBuilder, now: float) -> None:
        """Compare again; entries sent and not acked may have been lost."""
        channel.in_flight.clear()
        with_heads = channel.state is not SyncState.DENIED
        self.send_open(channel, out, now, with_heads=with_heads)

    def repair(
        self, channels: Iterable[Channel], out: EffectsBuilder, now: float, *, may_send: bool
    ) -> None:
        """Recheck these channels, except those that only wait for credit."""
        for channel in channels:
            if channel.outgoing and not may_send:
                channel.recheck(now + limits.RESYNC_S)
            else:
                self._compare_again(channel, out, now)

    # --- entries and acks ---------------------------------------------------------

    def receive_entries(
        self, message: Entries, peer: PublicKey | None, out: EffectsBuilder, now: float
    ) -> None:
        """Receive entries; the hub holds all that it sends (LINK-13)."""
        channel = self.channels.get(message.conversation)
        if channel is None:
            return  # a frame that crossed our Close
        before = self.shelf.get(message.conversation)
        was_blocked = before is not None and before.is_blocked
        known = self.intake.receive(message, peer, out)
        held = self.shelf.get(message.conversation)
        if held is None:
            return
        channel.received_since_check = True
        channel.wanted -= held.log.entries.keys()
        # Entries released by these were pending here; the hub may lack them (LINK-15).
        freed = self.intake.freed_by(message, known)
        sent = (entry_id for entry_id in known if entry_id not in freed)
        channel.deliver_acked(channel.mark_acked(held, sent), out)
        # ORD-13: entries held here that a grant among these made covered are offered now.
        brought = set(known)
        more = [i for i in held.log.offered(known) if i not in brought]
        self.offer(held.id, [*(i for i in known if i in freed), *more], now)
        if was_blocked and not held.is_blocked:
            self.send_open(channel, out, now, with_heads=True)
        channel.settle(out)

    def receive_ack(self, message: Ack, out: EffectsBuilder) -> None:
        """Mark entries and their lane ancestors as durable at the hub (LINK-15)."""
        channel = self.channels.get(message.conversation)
        if channel is None:
            return
        held = self._conversation(channel.id)
        # LINK-60: the hub can't hold what it was not sent.
        credible = [i for i in message.ids if i in channel.sent or i not in channel.unacked]
        channel.deliver_acked(channel.mark_acked(held, credible), out)
        channel.settle(out)

    def _note_ids(
        self, channel: Channel, held: Conversation, ids: set[EntryId], out: EffectsBuilder
    ) -> None:
        channel.wanted = ids - held.log.entries.keys()
        channel.deliver_acked(channel.mark_acked(held, ids & channel.unacked), out)

    # --- refusals -------------------------------------------------------

    def _refuses_conversation(self, fault: Fault) -> bool:
        conversation = fault.conversation
        if conversation is None or conversation not in self.channels:
            return False
        return refuses_conversation(fault, is_held=self.shelf.get(conversation) is not None)

    def _receive_refusal(self, fault: Fault, out: EffectsBuilder, now: float) -> None:
        """Seed a hub that lost the conversation; deny the channel on any other refusal."""
        assert fault.conversation is not None, "it refuses a conversation"
        channel = self.channels[fault.conversation]
        if fault.reason == ConversationUnknown.reason:
            self._seed(channel, fault, out, now)
        else:
            deny(channel, fault, out, now)

    def _seed(self, channel: Channel, fault: Fault, out: EffectsBuilder, now: float) -> None:
        """Send the whole conversation to a hub that does not know it (LINK-10)."""
        is_asking = bool(len(channel.opens))
        if fault.entry is not None:
            # It refused our entries; the answer to the next Open gives the reason.
            if channel.seedings and not is_asking and channel.state is not SyncState.DENIED:
                channel.recheck(now)
            return
        if channel.state is SyncState.DENIED and not is_asking:
            return  # a copy of a refusal that was received, or one of entries sent before it
        channel.opens.give_up()
        if seed(channel, self._conversation(channel.id), now):
            channel.change(SyncState.RECONCILING, out)
        else:
            deny(channel, cause_of(channel, fault), out, now)


def _check_later(channel: Channel, sent: SentOpen, message: Opened, now: float) -> bool:
    """Postpone a comparison made inconclusive by entries in flight, a few times in a row.

    Those that the application asks for do not count: they may come at any rate.
    """
    if message.heads is not None or channel.busy_checks >= BUSY_CHECKS_MAX:
        return False
    channel.busy_checks += not sent.is_asked
    if channel.check_at is None or not sent.is_asked:
        channel.check_at = now + limits.RESYNC_S
    if not channel.unacked:
        channel.recheck_at = None
    return True
