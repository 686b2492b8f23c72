"""Bugs put into clients on purpose, in the entries that they write; more of `planted_peers`."""

from dataclasses import replace
from math import inf
from unittest import mock

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from antiphon.conformance.io import adapter
from replica import limits
from replica.conversation import author
from replica.conversation.author import Author
from replica.conversation.conversation import Conversation
from replica.document import projection
from replica.document.fold import DocumentFold
from replica.document.projection import Document, Edit
from replica.io import Replica, rpc
from replica.io.calls import hub_calls
from replica.link import auth, draft_intake, exchange
from replica.link.channel import Channel
from replica.link.client_side import ClientSide
from replica.link.credit import FlowControl
from replica.link.heartbeat import Heartbeat
from replica.link.link import Link, Phase
from replica.log import Conflict, Request
from replica.order.tree import Order
from replica.refusals import SignatureInvalid
from tests.conformance.planted_hub import both
from tests.simulation.planted import Patch


def writes_all_at_the_start_of_a_lane() -> Patch:
    return mock.patch.object(Conversation, "next_position", lambda self, lane: (0, None))


def ignores_critical_kinds() -> Patch:
    return mock.patch.object(author, "_is_stopped", lambda log: False)


def heeds_void_critical_kinds() -> Patch:
    return mock.patch.object(author, "_is_stopped", lambda log: bool(log.unknown_critical))


def follows_uncovered_entries() -> Patch:
    newest = adapter.newest_place

    def last(held: Conversation) -> object:
        on_track = [e for e in held.log.entries.values() if e.header.track == 1]
        parents = (max(on_track, key=lambda e: e.order_key).id,) if on_track else ()
        return replace(newest(held), parents=parents or newest(held).parents)

    return both(
        mock.patch.object(adapter, "newest_place", last),
        mock.patch.object(Author, "may_name", lambda self, held, named: True),
    )


def connects_anywhere_without_tls() -> Patch:
    return both(
        mock.patch.object(hub_calls, "is_loopback", lambda address: True),
        mock.patch.object(hub_calls, "require_known_key", lambda key, address: None),
    )


def writes_the_whole_document() -> Patch:
    update = Edit.update

    def whole(self: Edit) -> bytes:
        for key, value in self._document.projection.meta.items():
            if ("meta", key) not in self._writes:
                self.set_meta(key, value)
        return update(self)

    return mock.patch.object(Edit, "update", whole)


def follows_no_edit() -> Patch:
    first = property(lambda self: (min(self._updates.values(), key=lambda u: u.lamport).id,))
    return mock.patch.object(Document, "heads", first)


def asks_for_ids_in_return() -> Patch:
    queue = Channel.queue_ids
    return mock.patch.object(
        Channel, "queue_ids", lambda self, held, *, answer: queue(self, held, answer=False)
    )


def compares_no_digests_when_idle() -> Patch:
    return mock.patch.object(ClientSide, "verify", lambda self, channels, out, now: None)


def shrinks_its_limit() -> Patch:
    def extend(self, limit_bytes):
        self.sent_limit = limit_bytes

    return mock.patch.object(FlowControl, "extend", extend)


def shows_one_run_alone() -> Patch:
    accept = draft_intake.accept_draft

    def first(held, draft, sender):
        stream = held.drafts.get(draft.request)
        return (stream is None or stream.run == draft.run) and accept(held, draft, sender)

    return mock.patch.object(exchange, "accept_draft", first)


def heeds_every_greeting() -> Patch:
    receive = Link._receive_welcome

    def again(self, message, out, now):
        self.phase = Phase.CONNECTING
        receive(self, message, out, now)

    return mock.patch.object(Link, "_receive_welcome", again)


def edits_any_value() -> Patch:
    """Check neither the value nor the update that is made of it."""
    check = DocumentFold.check

    def careless(self: DocumentFold, *given: object, **named: object) -> object:
        return check(self, *given, **named) if named.get("own") else None

    return both(
        mock.patch.object(projection, "plain", lambda value: value),
        mock.patch.object(DocumentFold, "check", careless),
    )


def signs_expired_challenges() -> Patch:
    def prove(key, nonce, challenge, *, now_ms, **more):
        return auth.prove(key, nonce, challenge, now_ms=0, **more)

    return mock.patch.object(rpc, "prove", prove)


def signs_for_nonces_of_any_width() -> Patch:
    def prove(key, nonce, challenge, **more):
        with mock.patch.object(auth, "NONCE_BYTES", len(challenge.server_nonce)):
            return auth.prove(key, nonce, challenge, **more)

    return mock.patch.object(rpc, "prove", prove)


def accepts_keys_of_small_order() -> Patch:
    def verify(key, signature, message):
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
        except (InvalidSignature, ValueError) as error:
            raise SignatureInvalid from error

    return mock.patch.object(auth, "verify", verify)


def believes_any_host() -> Patch:
    receive = Order._receive_generation

    def of_any(self, entry):
        request = self.request(entry.header.parents[0])
        if request is None:
            node = self.nodes.get(entry.header.parents[0])
            if node is not None and node.generation is None:
                node.generation = entry.id
            return
        receive(self, entry)

    return mock.patch.object(Order, "_receive_generation", of_any)


def believes_any_refusal() -> Patch:
    receive = Order._receive_generation

    def of_any(self, entry):
        (parent,) = entry.header.parents
        if self.request(parent) is not None:
            self.refusal_of.setdefault(parent, entry.id)
        receive(self, entry)

    return mock.patch.object(Order, "_receive_generation", of_any)


def believes_the_last_answer() -> Patch:
    receive = Order._receive_generation

    def last(self, entry):
        node = self.nodes.get(entry.header.parents[0])
        if node is not None:
            node.generation = None
        receive(self, entry)

    return mock.patch.object(Order, "_receive_generation", last)


def believes_what_came_first() -> Patch:
    receive = Order._receive_generation

    def first(self, entry):
        node = self.nodes.get(entry.header.parents[0])
        if node is None or node.generation is None:
            receive(self, entry)

    return mock.patch.object(Order, "_receive_generation", first)


def believes_answers_with_two_parents() -> Patch:
    receive = Order._receive_generation

    def of_any_parent(self, entry):
        for parent in entry.header.parents:
            node = self.nodes.get(parent)
            if node is not None and node.generation is None:
                node.generation = entry.id
        receive(self, entry)

    return mock.patch.object(Order, "_receive_generation", of_any_parent)


def believes_a_refusal_for_good() -> Patch:
    found = Order.generation_of
    return mock.patch.object(
        Order, "generation_of", lambda self, one: self.refusal_of.get(one) or found(self, one)
    )


def follows_one_entry_alone() -> Patch:
    newest = adapter.newest_place

    def last(held: Conversation) -> object:
        place = newest(held)
        return replace(place, parents=place.parents[-1:])

    return mock.patch.object(adapter, "newest_place", last)


def extends_no_seal() -> Patch:
    newest = adapter.newest_place
    return mock.patch.object(
        adapter, "newest_place", lambda held: replace(newest(held), basis=None)
    )


def asks_for_branches() -> Patch:
    append = Replica.append

    def forking(self, conversation, body, **place):
        conflict = Conflict.FORK if isinstance(body, Request) else Conflict.QUEUE
        return append(self, conversation, body, **place, conflict=conflict)

    return mock.patch.object(Replica, "append", forking)


def waits_for_a_silent_hub() -> Patch:
    never = property(lambda _self: inf)
    return both(
        mock.patch.object(limits, "IDLE_TIMEOUT_S", 0.5),
        mock.patch.object(Heartbeat, "idle_at", never),
    )
