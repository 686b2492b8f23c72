"""What a hub alone does with the conversations of a link (spec/04-link §5).

Pure, and private to link.py. A hub answers; it never asks anew.
"""

from collections.abc import Iterable

from replica import limits
from replica.conversation import Conversation
from replica.ids import EntryId, PublicKey
from replica.link.channel import Channel
from replica.link.effects import EffectsBuilder
from replica.link.exchange import Exchange, Side
from replica.link.messages import Ack, Entries, Fault, Message, Open, Opened
from replica.refusals import ConversationUnknown, LanesDiverged, QuotaExceeded


class HubSide(Exchange):
    """The channels of one link at its hub."""

    side = Side.HUB

    def receive(
        self, message: Message, peer: PublicKey | None, out: EffectsBuilder, now: float
    ) -> None:
        """Take a message about a conversation."""
        match message:
            case Open():
                self.receive_open(message, peer, out)
            case Entries():
                self.receive_entries(message, peer, out)
            case _:
                super().receive(message, peer, out, now)

    def receive_open(self, message: Open, peer: PublicKey | None, out: EffectsBuilder) -> None:
        """Answer with digest or heads, and queue what the client lacks (LINK-11)."""
        held = self.shelf.get(message.conversation)
        if held is None or not self._may_read(held, peer):
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
        self._answer(channel, held, message, out)

    def _answer(
        self, channel: Channel, held: Conversation, message: Open, out: EffectsBuilder
    ) -> None:
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
            for where in self._send_missing(channel, held, message.heads)[:1]:
                detail = f"seq {where.seq} of lane {where.lane.epoch:016x} holds two entries"
                self._send(Fault.of(LanesDiverged(detail), held.id, where.id), out)

    def receive_entries(
        self, message: Entries, peer: PublicKey | None, out: EffectsBuilder
    ) -> None:
        """Take entries in, and ack them (LINK-13)."""
        known = self.intake.receive(message, peer, out)
        held = self.shelf.get(message.conversation)
        if held is not None:
            self._ack(held, known, out)

    def _expect_acks(self, channel: Channel, ids: Iterable[EntryId]) -> None:
        """Expect none: a client asks for what it lacks."""

    def _ask_later(self, channel: Channel, now: float) -> None:
        """Leave that to the client."""

    def _note_ids(
        self, channel: Channel, held: Conversation, ids: set[EntryId], out: EffectsBuilder
    ) -> None:
        """Keep nothing: what the client holds beyond ours, it sends."""

    def _ack(self, held: Conversation, known: list[EntryId], out: EffectsBuilder) -> None:
        if known:
            followed = {held.log.entries[i].header.prev for i in known}
            tips = sorted(set(known) - followed)
            self._send(Ack(held.id, tuple(tips)), out)
