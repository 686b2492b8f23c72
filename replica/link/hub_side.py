"""The hub's side of the conversations of a link (spec/04-link §5).

Pure, and private to link.py. A hub answers and never starts a comparison
(DECISIONS D32). It answers a digest in mid-traffic without heads (DECISIONS D29).
"""

from collections.abc import Iterable, Sequence

from replica import limits
from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.link.channel import ENTRIES_FRAME_BYTES, Channel, is_sending
from replica.link.codec import encoded_steps
from replica.link.comparison import Backlog, sendable_heads
from replica.link.credit import grant_bytes
from replica.link.effects import EffectsBuilder
from replica.link.exchange import Exchange, Side
from replica.link.messages import Ack, Entries, Fault, Ids, Message, Open, Opened
from replica.link.steps import JUDGED_ENTRIES, STEP_HEADS, Steps
from replica.refusals import ConversationUnknown, LanesDiverged, QuotaExceeded

SHARED_IDS = 8
"""Entries that are offered to all readers at once from which on these share a sequence."""


class HubSide(Exchange):
    """The channels of one link at its hub."""

    side = Side.HUB
    _encoded: tuple[Position, ...] = ()
    """The heads that were encoded for the answer to the Open that comes next."""
    _unjudged: tuple[Conversation | None, tuple[EntryId, ...]] = None, ()
    """Admitted entries of a message that are uncovered, unless the rest of it covers them.

    Those of a log that was dropped meanwhile, as with a commit that the disk refused, are not
    judged by another one.
    """

    @property
    def is_walking(self) -> bool:
        """Say whether what a message makes the hub send may be behind many entries."""
        return any(channel.backlog is not None for channel in self.channels.due())

    def prepare(
        self, message: Message, peer: PublicKey | None, *, may_send: bool = True
    ) -> Steps[None]:
        """Do the long part of the work for the message that comes next, in steps (LINK-92).

        The entries that it makes the hub send are found, if `may_send`.
        """
        bytes_ahead = grant_bytes() + ENTRIES_FRAME_BYTES if may_send else 0
        if isinstance(message, Open | Ids):
            held = self.shelf.get(message.conversation)
            if held is not None and self._may_read(held, peer):
                if isinstance(message, Open):
                    yield from self._prepare_open(message, held, bytes_ahead)
                else:
                    yield from self._prepare_ids(message, held, bytes_ahead)
        for channel in tuple(self.channels.due()):
            if self.shelf.get(channel.id) is None:
                continue  # a fold pauses
            is_replaced = isinstance(message, Open | Ids) and channel.id == message.conversation
            if channel.backlog is not None and not is_replaced:
                yield from channel.backlog.look_ahead(bytes_ahead)

    def _prepare_ids(self, message: Ids, held: Conversation, bytes_ahead: int) -> Steps[None]:
        """Find the first entries that are not among the ids of a peer, with the last of these."""
        channel = self.channels.get(message.conversation)
        if channel is not None and not message.more:
            channel.peer_ids.update(self._ids_to_keep(held, message.ids))
            yield from self._compared.absent_steps(held.log, channel.peer_ids, bytes_ahead)

    def _prepare_open(self, message: Open, held: Conversation, bytes_ahead: int) -> Steps[None]:
        """Compare the heads of an Open, and encode ours."""
        if message.digest == held.log.digest:
            return
        ours = self._heads_for(message, held)
        if ours is not None and len(ours) > STEP_HEADS:
            self._encoded = yield from encoded_steps(ours)
        if message.heads is not None:  # last: what is admitted behind it would be left out
            yield from self._compared.steps(held.log, message.heads, bytes_ahead)

    def receive(
        self, message: Message, peer: PublicKey | None, out: EffectsBuilder, now: float
    ) -> None:
        """Receive a message about a conversation."""
        match message:
            case Open():
                self.receive_open(message, peer, out)
                self._compared.forget()
                self._encoded = ()
            case Ids():
                self.receive_ids(message, peer, out, now)
                self._compared.forget()
            case Entries():
                self.receive_entries(message, peer, out)
            case _:
                super().receive(message, peer, out, now)

    def receive_open(self, message: Open, peer: PublicKey | None, out: EffectsBuilder) -> None:
        """Answer with digest or heads, and queue the entries the client lacks (LINK-11)."""
        held = self.shelf.get(message.conversation)
        if held is None or not self._may_read(held, peer):
            # The same answer for "no such conversation" and "not yours" (DECISIONS D21).
            self._fault(ConversationUnknown(), message.conversation, out)
            return
        if (
            message.conversation not in self.channels
            and len(self.channels) >= limits.CONVERSATIONS_PER_LINK_MAX
        ):
            self._fault(QuotaExceeded("too many conversations on one link"), held.id, out)
            return
        channel = self.channels.setdefault(message.conversation, Channel(message.conversation))
        self._answer(channel, held, message, out)

    def _answer(
        self, channel: Channel, held: Conversation, message: Open, out: EffectsBuilder
    ) -> None:
        channel.with_drafts = message.drafts
        equal = message.digest == held.log.digest
        channel.answer_due = None  # this one's answer stands for it
        if self._is_check(message) and not equal and is_sending(channel):
            channel.answer_due = message.number
        else:
            heads = None if equal else self._heads_for(message, held)
            if heads == self._encoded:
                heads = self._encoded
            opened = Opened(held.id, held.log.digest, equal, heads, message.number)
            self._send(opened, out)
        if not self._is_check(message):
            self._ask_missing(held, out)
        channel.is_open = channel.is_open or equal or message.heads is not None
        if message.drafts:
            if message.heads is not None:
                channel.forget_drafts()
            channel.drafts_due.update(held.drafts)
        if message.heads is not None and not equal:
            for where in self._send_missing(channel, held, message.heads)[:1]:
                detail = f"seq {where.seq} of lane {where.lane.epoch:016x} holds two entries"
                self._send(Fault.of(LanesDiverged(detail), held.id, where.id), out)

    def _is_check(self, message: Open) -> bool:
        """Say whether an Open only asks if the logs are equal: with a digest alone, once open."""
        channel = self.channels.get(message.conversation)
        return channel is not None and channel.is_open and message.heads is None

    def _heads_for(self, message: Open, held: Conversation) -> tuple[Position, ...] | None:
        """Return the heads in the answer to an Open with another digest."""
        return None if self._is_check(message) else sendable_heads(held.log) or ()  # REC-6

    def receive_entries(
        self, message: Entries, peer: PublicKey | None, out: EffectsBuilder
    ) -> None:
        """Admit entries, and ack the covered ones (LINK-13)."""
        known = self.intake.receive(message, peer, out)
        held = self.shelf.get(message.conversation)
        (judged_in, waiting), self._unjudged = self._unjudged, (None, ())
        if held is None:
            return
        if judged_in is not held:
            waiting = ()
        # The peer can't tell what it did not send, nor what that follows in its lane.
        freed = self.intake.freed_by(message, known)
        sent = [i for i in known if i not in freed]
        if not message.more:
            sent = [*waiting, *sent]
        elif not message.entries:
            sent, self._unjudged = list(waiting[:JUDGED_ENTRIES]), (held, waiting[JUDGED_ENTRIES:])
        else:  # ORD-16: what is uncovered is judged once the whole message is admitted
            covered = held.log.covered()
            self._unjudged = held, (*waiting, *(i for i in sent if i not in covered))
            sent = [i for i in sent if i in covered]
        # ORD-13: nobody need keep the others, so they are not acked.
        self._ack(held, self.intake.covered(held, sent, out), out)

    def offer(
        self,
        conversation: ConversationId,
        ids: Sequence[EntryId],
        _now: float,
        *,
        send: bool = True,
    ) -> None:
        """Queue entries if the client has the conversation open.

        `ids` are those of `Log.offered`, which is asked once for all readers: they share a long
        sequence.
        """
        channel, held = self.channels.get(conversation), self.shelf.get(conversation)
        if channel is None or (held is not None and held.is_blocked):  # LINK-34
            return
        if not channel.is_open or not send:
            return
        if len(ids) > SHARED_IDS:
            channel.outgoing.share(tuple(ids))
        else:
            channel.queue(ids)

    def _queue_missing(self, channel: Channel, entries: Backlog) -> None:
        """Begin a backlog; it replaces the rest of an earlier one."""
        channel.backlog = entries

    def _ids_to_keep(self, _held: Conversation, ids: Iterable[EntryId]) -> Iterable[EntryId]:
        """Return the ids held here: others take memory and change nothing."""
        entries = _held.log.entries
        return [entries[i].id for i in ids if i in entries]

    def _note_ids(
        self, channel: Channel, held: Conversation, ids: set[EntryId], out: EffectsBuilder
    ) -> None:
        """Do nothing: the client sends the entries the hub lacks."""

    def _ack(self, held: Conversation, known: list[EntryId], out: EffectsBuilder) -> None:
        if known:
            followed = {held.log.entries[i].header.prev for i in known}
            tips = sorted(set(known) - followed)
            self._send(Ack(held.id, tuple(tips)), out)
