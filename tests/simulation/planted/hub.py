"""Bugs in the hub: recipients of messages, and acks."""

from unittest import mock

from replica.conversation import Draft
from replica.ids import ConversationId
from replica.link.channel import Channel
from replica.link.effects import EffectsBuilder
from replica.link.exchange import Exchange
from replica.link.hub_side import HubSide
from replica.link.messages import Ack, Entries, ListingItem
from syncd.hub import Hub
from syncd.links import fan_out
from syncd.links.connected import LinkId
from syncd.links.fan_out import FanOut, HubEffects
from syncd.links.postponed import Postponed
from tests.simulation.planted import Patch


def checks_no_membership_at_delivery() -> Patch:
    pump = Exchange.pump

    def careless(self: Exchange, peer: object, out: EffectsBuilder, **more: object) -> None:
        with mock.patch.object(Exchange, "_may_read", lambda self, held, peer: True):
            pump(self, peer, out, **more)

    return mock.patch.object(Exchange, "pump", careless)


def lets_everyone_read() -> Patch:
    return mock.patch.object(Exchange, "_may_read", lambda self, held, peer: True)


def lists_conversations_of_others() -> Patch:
    def list_to_all(self: FanOut, conversation: ConversationId) -> None:
        item = ListingItem(conversation)
        for link_id, link in self._connected.links.items():
            if link.follows:
                self._list(link_id, [item])

    return mock.patch.object(FanOut, "list_one", list_to_all)


def streams_drafts_to_links_that_did_not_open() -> Patch:
    offer = FanOut._offer_draft

    def offer_to_all(self: FanOut, source: LinkId | None, draft: Draft) -> None:
        for link_id, link in self._connected.links.items():
            channel = Channel(draft.conversation, is_open=True, with_drafts=True)
            link.exchange.channels.setdefault(draft.conversation, channel)
            self._connected.note_opened(link_id, draft.conversation)
        offer(self, source, draft)

    return mock.patch.object(FanOut, "_offer_draft", offer_to_all)


def streams_no_drafts() -> Patch:
    return mock.patch.object(FanOut, "_offer_draft", lambda self, source, draft: None)


def forgets_who_waits_for_a_later_step() -> Patch:
    return mock.patch.object(Postponed, "take_new", lambda self: [])


def offers_nothing_to_other_links() -> Patch:
    def offer(
        self: HubSide, conversation: ConversationId, ids: list, now: float, *, send: bool = True
    ) -> None: ...

    return mock.patch.object(HubSide, "offer", offer, create=True)


def sends_entries_back_to_their_sender() -> Patch:
    return mock.patch.object(fan_out, "_without", lambda ids, *known: tuple(ids))


def goes_on_with_a_conversation_that_was_closed() -> Patch:
    return mock.patch.object(HubSide, "receive_close", lambda self, *rest: None, create=True)


def acks_nothing() -> Patch:
    return mock.patch.object(HubSide, "_ack", lambda self, held, known, out: None)


def acks_whatever_it_receives() -> Patch:
    def receive(self: HubSide, message: Entries, peer: object, out: EffectsBuilder) -> None:
        self.intake.receive(message, peer, out)
        self._send(Ack(message.conversation, message.ids), out)

    return mock.patch.object(HubSide, "receive_entries", receive)


def forgets_no_refused_entries() -> Patch:
    return mock.patch.object(Hub, "disk_refused", lambda self, lost, fault: HubEffects())


def evicts_unwritten_conversations() -> Patch:
    evict = Hub.evict
    return mock.patch.object(Hub, "evict", lambda self, busy: evict(self, frozenset()))
