"""Faults in what a hub makes of single entries; more of `planted_hub`."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from google.protobuf.message import DecodeError

from replica import limits
from replica.conversation import Conversation
from replica.ids import ConversationId, Digest, EntryId, Lane, PublicKey
from replica.link import Entries, Fault, Open
from replica.link.effects import EffectsBuilder
from replica.link.hub_side import HubSide
from replica.link.intake import Intake
from replica.log import Entry, Grant, Kind, Log, Member, codec
from replica.log.admission import Admission
from replica.log.cover import Cover
from replica.log.lanes import Lanes
from syncd.bounds.mailboxes import Mailboxes
from syncd.calls import queries
from syncd.calls.pushing import Outcomes, Pushing
from syncd.calls.queries import Right
from syncd.io.blob_stores import BlobStores
from syncd.links.parts import parts
from tests.conformance.planted_hub import Patch, both

LIMIT = limits.PENDING_LINK_BYTES_MAX
ROLE_MAX = 4
YEAR_3000_MS = 32_503_680_000_000


def _drops(is_dropped: Callable[[Entry], bool]) -> Patch:
    """Drop some entries without a word."""
    admit = Intake._admit

    def picky(self: Intake, held: object, entry: Entry, outcome: object, out: object) -> None:
        if not is_dropped(entry):
            admit(self, held, entry, outcome, out)

    return mock.patch.object(Intake, "_admit", picky)


def drops_entries_of_the_future() -> Patch:
    return _drops(lambda entry: entry.header.create_time_ms > YEAR_3000_MS)


def judges_a_message_by_its_parts() -> Patch:
    def alone(*asked: Any) -> Iterable[Any]:
        for part in parts(*asked):
            yield replace(part, more=False) if isinstance(part, Entries) else part

    return mock.patch("syncd.io.loader.parts", alone)


def judges_a_push_by_its_parts() -> Patch:
    def outcomes(self: Pushing, _conversation: ConversationId) -> Outcomes:
        return self._outcomes

    return mock.patch.object(Pushing, "outcomes", outcomes)


def acks_what_other_links_sent() -> Patch:
    def receive(self: HubSide, message: Entries, peer: PublicKey, out: EffectsBuilder) -> None:
        known = self.intake.receive(message, peer, out)
        self._ack(self.shelf[message.conversation], known, out)

    return mock.patch.object(HubSide, "receive_entries", receive)


def answers_a_pending_entry_once() -> Patch:
    return mock.patch.object(Admission, "named_by", lambda self, entry_id: ())


def knows_another_kind_10() -> Patch:
    return _drops(lambda entry: entry.header.kind == 10)


def keeps_the_first_of_two_at_a_position() -> Patch:
    taken: dict[object, bytes] = {}

    def is_second(entry: Entry) -> bool:
        return taken.setdefault((entry.header.lane, entry.header.seq), entry.id) != entry.id

    return _drops(is_second)


def drops_unknown_roles() -> Patch:
    def is_unknown(entry: Entry) -> bool:
        if entry.header.kind != Kind.MEMBER or entry.body is None:
            return False
        body = codec.decode_body(Kind.MEMBER, entry.body[16:])
        assert isinstance(body, Member)
        return isinstance(body.change, Grant) and body.change.role > ROLE_MAX

    return _drops(is_unknown)


def keeps_pending_entries_of_ended_links() -> Patch:
    return mock.patch.object(Intake, "drop_pending", lambda self: None)


def charges_all_links_for_pending_entries() -> Patch:
    charge, charged = Intake._charge, list[int]()

    def shared(self: Intake, held: object, entry: Entry, out: object) -> None:
        charged.append(entry.size_bytes)
        others = sum(charged) - entry.size_bytes - self.pending_bytes
        with mock.patch.object(limits, "PENDING_LINK_BYTES_MAX", LIMIT - others):
            charge(self, held, entry, out)

    return mock.patch.object(Intake, "_charge", shared)


def offers_new_entries_alone() -> Patch:
    def new(self: Log, ids: Iterable[EntryId]) -> list[EntryId]:
        return [i for i in ids if i in self.covered()]

    return mock.patch.object(Log, "offered", new)


def offers_what_grants_let_in_alone() -> Patch:
    note = Cover._note_regained

    def of_grants(self: Cover, came, regained, now) -> None:
        ids = tuple(came)
        changes = (self._entries[i] for i in ids if self._entries[i].header.kind == Kind.MEMBER)
        bodies = (codec.decode_body(Kind.MEMBER, entry.body or b"") for entry in changes)
        grants = any(isinstance(body, Member) and isinstance(body.change, Grant) for body in bodies)
        note(self, ids, regained if grants else [], now)

    return mock.patch.object(Cover, "_note_regained", of_grants)


def offers_a_grant_behind_its_entries() -> Patch:
    offered = Log.offered
    return mock.patch.object(Log, "offered", lambda self, ids: offered(self, ids)[::-1])


def fills_no_body() -> Patch:
    return mock.patch("replica.log.log.filled", lambda _known, _entry: None)


def fetches_one_of_two_at_a_position() -> Patch:
    def first(self: Lanes, lane: Lane, start: int = 0) -> Iterator[EntryId]:
        return (self.at(lane, seq)[0] for seq in range(start, self.length(lane)))

    return mock.patch.object(Lanes, "walk", first)


def calls_uncovered_entries_durable() -> Patch:
    fate_of = queries.fate_of

    def kind(held: Conversation, entry_id: EntryId) -> queries.Fate:
        fate = fate_of(held, entry_id)
        return queries.Held(None, None) if isinstance(fate, queries.Uncovered) else fate

    return mock.patch.object(queries, "fate_of", kind)


def compares_an_open_conversation_no_more() -> Patch:
    receive = HubSide.receive_open

    def once(self: HubSide, message: Open, peer: PublicKey | None, out: EffectsBuilder) -> None:
        channel = self.channels.get(message.conversation)
        if channel is None or not channel.is_open or message.heads is None:
            receive(self, message, peer, out)

    return mock.patch.object(HubSide, "receive_open", once)


def _states(**changes: Any) -> Patch:
    """Change what all faults state."""
    of = Fault.of

    def changed(*given: Any, **named: Any) -> Fault:
        return replace(of(*given, **named), **changes)

    return mock.patch.object(Fault, "of", changed)


def says_nothing_to_do_next() -> Patch:
    return _states(next_step="")


def calls_nothing_retryable() -> Patch:
    return _states(retryable=False)


def empties_a_mailbox_opened_again() -> Patch:
    open_box = Mailboxes.open

    def anew(self: Mailboxes, owner: PublicKey, name: bytes, *times: int) -> frozenset[int]:
        if name in self._boxes:
            self._boxes[name].deposits.clear()
        return open_box(self, owner, name, *times)

    return mock.patch.object(Mailboxes, "open", anew)


def lets_any_member_remove_blobs() -> Patch:
    permitted = queries.permitted

    def lenient(held: Conversation | None, peer: PublicKey, right: Right) -> Conversation:
        return permitted(held, peer, Right.READ if right is Right.REMOVE_BLOBS else right)

    return mock.patch.object(queries, "permitted", lenient)


def removes_blobs_that_last() -> Patch:
    remove = BlobStores.remove

    async def either(self: BlobStores, conversation: ConversationId, digest: Digest) -> int:
        removed = await remove(self, conversation, digest)
        await self._lasting.delete(conversation)
        return removed

    return mock.patch.object(BlobStores, "remove", either)


def shows_the_text_of_its_decoder() -> Patch:
    def frank(message, data, error):
        try:
            return message.FromString(data)
        except DecodeError as cause:
            raise error(str(cause)) from cause

    return both(
        mock.patch("replica.io.serving.rpc.parse", frank),
        mock.patch("replica.link.codec.parse", frank),
    )
