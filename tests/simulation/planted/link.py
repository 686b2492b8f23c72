"""Bugs in the exchange between a client and its hub."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from unittest import mock

from replica.conversation.conversation import Conversation
from replica.conversation.drafts import DraftStream
from replica.ids import ConversationId, EntryId
from replica.limits import RESYNC_S
from replica.link import client_side, comparison, hub_side
from replica.link.channel import Channel
from replica.link.client_side import ClientSide
from replica.link.credit import FlowControl
from replica.link.effects import EffectsBuilder
from replica.link.events import Compared, SyncState
from replica.link.exchange import Exchange
from replica.link.hub_side import HubSide
from replica.link.messages import Fault, Open, Opened
from replica.link.refusal import deny
from replica.link.sent_opens import SentOpen, SentOpens
from tests.simulation.planted import Patch


def never_checks_again() -> Patch:
    def ignore(self: ClientSide, channel: Channel, out: object, now: float) -> None:
        channel.recheck_at = None

    return mock.patch.object(ClientSide, "_compare_again", ignore)


def sends_nothing_twice() -> Patch:
    def recheck(self: ClientSide, channel: Channel, out: EffectsBuilder, now: float) -> None:
        self.send_open(channel, out, now, with_heads=True)

    return mock.patch.object(ClientSide, "_compare_again", recheck)


def never_verifies_an_idle_conversation() -> Patch:
    return mock.patch.object(ClientSide, "verify", lambda self, channels, out, now: None)


def never_grants_credit() -> Patch:
    return mock.patch.multiple(
        FlowControl, catch_up=lambda self, sent: None, grant=lambda self: None
    )


def leaves_the_first_of_a_suffix_out() -> Patch:
    lacking = comparison.lacking
    return mock.patch.object(comparison, "lacking", lambda *given: islice(lacking(*given), 1, None))


def counts_a_guess_as_an_ack() -> Patch:
    mark = Channel.mark_acked

    def guess(self: Channel, conversation: Conversation, ids: Iterable[bytes]) -> list:
        return mark(self, conversation, [*ids, *self.unacked])

    return mock.patch.object(Channel, "mark_acked", guess)


def gives_up_a_conversation_the_hub_lost() -> Patch:
    def give_up(
        self: ClientSide, channel: Channel, fault: Fault, out: EffectsBuilder, now: float
    ) -> None:
        deny(channel, fault, out, now)

    return mock.patch.object(ClientSide, "_seed", give_up)


def accepts_drafts_with_gaps() -> Patch:
    def receive(self: DraftStream, draft: object) -> bool:
        self.frames.append(draft)
        return True

    return mock.patch.object(DraftStream, "receive", receive)


def sends_entries_in_flight_again() -> Patch:
    def queue(self: Channel, ids: Iterable[EntryId]) -> None:
        for entry_id in ids:
            if entry_id not in self.refused:
                self.outgoing.add(entry_id)

    return mock.patch.object(Channel, "queue", queue)


def compares_after_every_frame_of_entries() -> Patch:
    offer = ClientSide.offer

    def eager(
        self: ClientSide, conversation: ConversationId, ids: list, now: float, *, send: bool = True
    ) -> None:
        channel = self.channels.get(conversation)
        if channel is not None and channel.recheck_at is None:
            channel.recheck(now + RESYNC_S)
        offer(self, conversation, ids, now, send=send)

    return mock.patch.object(ClientSide, "offer", eager)


def calls_every_digest_equal_at_the_hub() -> Patch:
    answer = HubSide._answer

    def agree(self: HubSide, channel: Channel, held: Conversation, message: Open, out) -> None:
        answer(self, channel, held, replace(message, digest=held.log.digest), out)

    return mock.patch.object(HubSide, "_answer", agree)


def calls_every_digest_equal_at_the_client() -> Patch:
    receive = ClientSide._receive_opened

    def agree(self: ClientSide, message: Opened, out: EffectsBuilder, now: float) -> None:
        digest = self.shelf[message.conversation].log.digest
        receive(self, replace(message, digest=digest), out, now)

    return mock.patch.object(ClientSide, "_receive_opened", agree)


def puts_a_comparison_off_for_ever() -> Patch:
    def later(channel: Channel, sent: SentOpen, message: Opened, now: float) -> bool:
        channel.check_at = now + RESYNC_S
        channel.recheck_at = None
        return True

    return mock.patch.object(client_side, "_check_later", later)


def answers_a_digest_ahead_of_the_entries() -> Patch:
    return mock.patch.object(hub_side, "is_sending", lambda channel: False)


def takes_a_late_answer_for_one_to_the_last_open() -> Patch:
    answered_by = SentOpens.answered_by

    def last(self: SentOpens, message: Opened) -> SentOpen | None:
        return answered_by(self, replace(message, number=self.last_number))

    return mock.patch.object(SentOpens, "answered_by", last)


def compares_nothing_that_the_application_asks_for() -> Patch:
    def claim(self: ClientSide, channel: Channel, out: EffectsBuilder, now: float) -> None:
        out.deliver.append(Compared(channel.id, now))

    return mock.patch.object(ClientSide, "compare", claim)


def counts_lanes_the_hub_is_ahead_on_as_acked() -> Patch:
    send_missing = Exchange._send_missing

    def guess(self: Exchange, channel: Channel, held: Conversation, heads: tuple) -> tuple:
        if isinstance(self, ClientSide):
            verdict = comparison.compare_heads(held.log, heads)
            self.guessed = channel.mark_acked(held, verdict.held)
        return send_missing(self, channel, held, heads)

    difference = ClientSide._receive_difference

    def report_early(
        self: ClientSide, channel: Channel, held: Conversation, message, out, now
    ) -> None:
        difference(self, channel, held, message, out, now)
        channel.deliver_acked(getattr(self, "guessed", []), out)

    return mock.patch.multiple(ClientSide, _send_missing=guess, _receive_difference=report_early)


def settles_before_the_hub_answers_an_open() -> Patch:
    """A log that is sent and acked counts as synchronized: the Open behind it never goes out."""

    def settle(self: Channel, out: EffectsBuilder) -> None:
        if not (self.unacked or self.wanted) and self.state in (
            SyncState.RECONCILING,
            SyncState.DESYNCHRONIZED,
        ):
            self.recheck_at = None
            self.change(SyncState.SYNCHRONIZED, out)

    return mock.patch.object(Channel, "settle", settle)
