"""Faults put into a hub on purpose, each a few lines: the kit must find every one.

They change the hub alone: the kit runs in the same process, and shares with it only
the pure core, which encodes entries and frames.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from unittest import mock

from replica import limits
from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId, PublicKey
from replica.io.blobs.blob_writer import BlobWriter
from replica.io.store.store import Store
from replica.link import Authenticator, Entries, Fault, LinkedHost, greeting
from replica.link.channel import Channel
from replica.link.credit import FlowControl
from replica.link.exchange import Exchange
from replica.link.hub_side import HubSide
from replica.link.intake import Intake
from replica.link.link import Link, Phase
from replica.log import Entry
from replica.refusals import NotAllowed
from syncd.bounds.mailboxes import VERDICTS_MAX, Mailboxes
from syncd.calls.pushing import Outcomes, Pushing
from syncd.calls.queries import Right
from syncd.hub import Hub
from syncd.io.blob_service import BlobService
from syncd.io.service import SyncService
from syncd.links.connected import Connected
from tests.simulation.planted import hub

Patch = AbstractContextManager[object]


def _nothing(*_given: object, **_named: object) -> None: ...


# --- proofs and greeting -------------------------------------------------------------


def accepts_any_proof() -> Patch:
    return mock.patch("replica.link.auth.verify", _nothing)


def accepts_any_ticket() -> Patch:
    def holder(self: Authenticator, ticket: bytes, now_ms: int) -> PublicKey:
        return PublicKey(ticket[:32].ljust(32, b"\x00"))

    return mock.patch.object(Authenticator, "holder", holder)


def accepts_expired_tickets() -> Patch:
    holder = Authenticator.holder
    return both(
        mock.patch("replica.link.auth.TICKET_LIFETIME_S", 1),
        mock.patch.object(
            Authenticator, "holder", lambda self, ticket, _now: holder(self, ticket, 0)
        ),
    )


def needs_no_hello() -> Patch:
    new_link = Hub._new_link

    def greeted(self: Hub, peer: PublicKey, now: float) -> Link:
        link = new_link(self, peer, now)
        link.phase = Phase.READY
        return link

    return mock.patch.object(Hub, "_new_link", greeted)


def greets_any_version() -> Patch:
    return mock.patch("replica.link.greeting.check_versions", _nothing)


def believes_any_host() -> Patch:
    return mock.patch("replica.link.greeting.check_host", _nothing)


def believes_any_recommendation() -> Patch:
    check = greeting.check_host

    def lenient(host, peer):
        check(replace(host, profiles=[replace(p, sampling=None) for p in host.profiles]), peer)

    return mock.patch("replica.link.greeting.check_host", lenient)


def numbers_no_answers() -> Patch:
    answer = HubSide._answer

    def unnumbered(self, channel, held, message, out):
        answer(self, channel, held, replace(message, number=0), out)

    return mock.patch.object(HubSide, "_answer", unnumbered)


def sorts_hosts_by_key() -> Patch:
    hosts = Connected.hosts

    def by_key(self: Connected, vouches_for: object) -> tuple[LinkedHost, ...]:
        return tuple(sorted(hosts(self, vouches_for), key=lambda host: host.key))

    return mock.patch.object(Connected, "hosts", by_key)


def vouches_for_all_hosts() -> Patch:
    hosts = Connected.hosts
    return mock.patch.object(Connected, "hosts", lambda self, _: hosts(self, lambda key: True))


def parses_frames_of_any_size() -> Patch:
    return mock.patch("replica.link.codec.FRAME_BYTES_MAX", 2**30)


def counts_no_items() -> Patch:
    return mock.patch("replica.link.codec.check_steps", lambda *_: ())


# --- credit ---------------------------------------------------------------------------


def heeds_no_credit() -> Patch:
    return both(
        mock.patch.object(FlowControl, "may_send", lambda self: True),
        mock.patch("replica.link.exchange.grant_bytes", lambda: 2**40),
    )


def forgets_lost_bytes() -> Patch:
    return mock.patch.object(FlowControl, "catch_up", _nothing)


@contextmanager
def both(*patches: Patch) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


# --- comparison ------------------------------------------------------------------------


def sends_heads_for_an_equal_digest() -> Patch:
    answer = HubSide._answer

    def differ(self: HubSide, channel: Channel, held: Conversation, message, out) -> None:
        answer(self, channel, held, replace(message, digest=bytes(32), heads=()), out)

    return mock.patch.object(HubSide, "_answer", differ)


def sees_no_lane_diverge() -> Patch:
    send_missing = Exchange._send_missing

    def agree(self: Exchange, channel: Channel, held: Conversation, heads: tuple) -> tuple:
        ours = set(held.log.entries)
        return send_missing(self, channel, held, tuple(h for h in heads if h.id in ours))

    return mock.patch.object(Exchange, "_send_missing", agree)


def answers_ids_with_a_question() -> Patch:
    queue_ids = Channel.queue_ids
    return mock.patch.object(
        Channel, "queue_ids", lambda self, held, *, answer: queue_ids(self, held, answer=False)
    )


def sends_entries_in_any_order() -> Patch:
    queue = HubSide._queue_missing

    def backwards(self: HubSide, channel: Channel, entries: Iterator[Entry]) -> None:
        queue(self, channel, iter([*entries][::-1]))

    return mock.patch.object(HubSide, "_queue_missing", backwards)


# --- entries ----------------------------------------------------------------------------


def stores_nothing() -> Patch:
    async def append(self: Store, entries: object, **given: bool) -> None: ...

    return mock.patch.object(Store, "append", append)


def acks_the_entries_of_readers() -> Patch:
    def receive(self: HubSide, message: Entries, peer: object, out: object) -> None:
        known = self.intake.receive(message, peer, out)
        self._ack(self.shelf[message.conversation], known, out)

    return mock.patch.object(HubSide, "receive_entries", receive)


def names_no_missing_entries() -> Patch:
    return mock.patch.object(Intake, "_finish", _finish_silently)


def _finish_silently(self: Intake, held: Conversation, message: Entries, outcome, out) -> None:
    from replica.link import EntriesAdmitted

    if outcome.admitted:
        freed = self.freed_by(message, (entry.id for entry in outcome.admitted))
        out.deliver.append(EntriesAdmitted(held.id, tuple(outcome.admitted), freed))


def bounds_no_pending_entries() -> Patch:
    return mock.patch.object(limits, "PENDING_LINK_BYTES_MAX", 2**40)


def has_no_quotas() -> Patch:
    return mock.patch("replica.link.intake.check_quotas", _nothing)


# --- strangers --------------------------------------------------------------------------


def says_that_a_conversation_is_not_yours() -> Patch:
    permitted = Hub.permitted

    def frank(
        self: Hub, peer: PublicKey, conversation: ConversationId, right: Right = Right.READ
    ) -> Conversation:
        held = self.shelf.get(conversation)
        if held is not None and not held.is_member(peer):
            raise NotAllowed
        return permitted(self, peer, conversation, right)

    return mock.patch.object(Hub, "permitted", frank)


def shows_a_stranger_what_is_held() -> Patch:
    outcomes = Pushing.outcomes

    def frank(self: Pushing, conversation: ConversationId) -> Outcomes:
        found = outcomes(self, conversation)
        held = self._shelf.get(conversation)
        known = held.log.entries if held is not None else {}
        return {i: None if i in known else fault for i, fault in found.items()}

    return mock.patch.object(Pushing, "outcomes", frank)


def _checked_nowhere(planted: Patch) -> Patch:
    """Check no membership at the writer of a stream either; one of two places would do."""
    unchecked = mock.patch.object(SyncService, "_delivered", lambda _self, _peer, message: message)
    return both(planted, unchecked)


def checks_no_membership_at_delivery() -> Patch:
    return _checked_nowhere(hub.checks_no_membership_at_delivery())


def lists_conversations_of_others() -> Patch:
    return _checked_nowhere(hub.lists_conversations_of_others())


def _asks_no_right(but: Right) -> Patch:
    permitted = Hub.permitted

    def lax(
        self: Hub, peer: PublicKey, conversation: ConversationId, right: Right = Right.READ
    ) -> Conversation:
        return permitted(self, peer, conversation, Right.READ if right is but else right)

    return mock.patch.object(Hub, "permitted", lax)


def lets_any_member_delete() -> Patch:
    return _asks_no_right(Right.DELETE)


def lets_any_member_write_blobs() -> Patch:
    return _asks_no_right(Right.WRITE_BLOBS)


def checks_the_reader_of_a_blob_once() -> Patch:
    check, seen = BlobService._permitted, set[bytes]()

    async def once(self: BlobService, request, context, right: Right) -> Conversation | None:
        if request.conversation in seen:
            return None
        held = await check(self, request, context, right)
        if right is Right.READ:
            seen.add(request.conversation)
        return held

    return mock.patch.object(BlobService, "_permitted", once)


def says_which_mailboxes_are_known() -> Patch:
    deposit = Mailboxes.deposit

    def frank(self: Mailboxes, name: bytes, newcomer: PublicKey, proof: bytes, now: int) -> int:
        found = deposit(self, name, newcomer, proof, now)
        return found if name in self._boxes else VERDICTS_MAX

    return mock.patch.object(Mailboxes, "deposit", frank)


def forgets_deletions() -> Patch:
    return mock.patch.object(Hub, "deleted", frozenset())


# --- calls ------------------------------------------------------------------------------


def calls_pending_entries_of_a_push_durable() -> Patch:
    def durable(ids: Iterable[EntryId], faults: list[Fault], held: object) -> dict:
        of = {fault.entry: fault for fault in faults}
        return {i: of.get(i) for i in ids}

    return mock.patch("syncd.calls.queries.outcomes", durable)


def ends_a_push_for_one_entry() -> Patch:
    push = SyncService.push

    async def strict(self: SyncService, request, context):
        found = await push(self, request, context)
        for outcome in found.outcomes:
            if not outcome.durable:
                from replica.io import status
                from replica.link import fault_from_pb

                raise status.error_of(fault_from_pb(outcome.fault))
        return found

    return mock.patch.object(SyncService, "push", strict)


def warns_of_nothing() -> Patch:
    return mock.patch("syncd.calls.pushed.warning_about", _nothing)


def calls_pending_entries_unknown() -> Patch:
    from syncd.calls import queries

    fate_of = queries.fate_of

    def short(held: Conversation, entry_id: EntryId) -> queries.Fate:
        found = fate_of(held, entry_id)
        return queries.Unknown() if isinstance(found, queries.Pending) else found

    return mock.patch("syncd.calls.queries.fate_of", short)


def calls_refused_entries_durable() -> Patch:
    from syncd.calls import queries

    fate_of = queries.fate_of

    def stored(held: Conversation, entry_id: EntryId) -> queries.Fate:
        found = fate_of(held, entry_id)
        return queries.Held(None, None) if isinstance(found, queries.Uncovered) else found

    return mock.patch("syncd.calls.queries.fate_of", stored)


def names_no_absent_ids() -> Patch:
    from syncd.calls import queries

    fetch = queries.fetch

    def silent(*given: object, **named: object) -> Iterator[queries.Fetched]:
        return (replace(one, absent=()) for one in fetch(*given, **named))

    return mock.patch("syncd.calls.queries.fetch", silent)


# --- Watch and drafts ----------------------------------------------------------------------


def hints_at_the_genesis() -> Patch:
    from syncd.links.hint import Hint, hint_for

    def stale(held: Conversation, author: PublicKey) -> Hint:
        return replace(hint_for(held, author), parents=(EntryId(held.id),))

    return mock.patch("syncd.links.fan_out.hint_for", stale)


def names_no_open_request() -> Patch:
    return mock.patch("syncd.links.hint._open_request", lambda held, tip: None)


def names_no_answer() -> Patch:
    return mock.patch("syncd.links.fan_out.answers", lambda held, entries: ())


def goes_on_behind_any_cursor() -> Patch:
    return mock.patch("syncd.links.watch.end_of", lambda item: None)


def sends_no_beats() -> Patch:
    return mock.patch("syncd.links.watch.HEARTBEAT", Fault("NO_BEAT"))


def keeps_no_running_draft() -> Patch:
    answer = HubSide._answer

    def live_only(self: HubSide, channel: Channel, held: Conversation, message, out) -> None:
        answer(self, channel, held, message, out)
        channel.drafts_due.clear()

    return mock.patch.object(HubSide, "_answer", live_only)


def relays_unsigned_drafts() -> Patch:
    return mock.patch("replica.link.draft_intake.verify_draft", _nothing)


def writes_a_blob_at_any_offset() -> Patch:
    open_ = BlobWriter._open

    async def anywhere(self: BlobWriter, offset: int) -> None:
        before = await self.tally.state(self.whole)
        await open_(self, before.committed_bytes)

    return mock.patch.object(BlobWriter, "_open", anywhere)


def keeps_a_blob_of_another_digest() -> Patch:
    return mock.patch(
        "replica.io.blobs.blob_writer.sha256", lambda path: bytes.fromhex(path.name[:64])
    )
