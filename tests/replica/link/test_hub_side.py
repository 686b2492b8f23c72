"""The hub's side of one link: opens, acks, and refusals of strangers."""

from dataclasses import dataclass, field, replace

import pytest

from replica import limits
from replica.conversation.conversation import Conversation
from replica.conversation.drafts import Draft, DraftStream, extend_digest
from replica.conversation.shelf import MemoryShelf
from replica.ids import ConversationId, Digest, PublicKey
from replica.link.effects import EffectsBuilder
from replica.link.hub_side import HubSide
from replica.link.messages import Ack, Close, Entries, Fault, Ids, Message, Open, Opened
from replica.log.entry import Entry
from replica.refusals import ConversationUnknown, EntriesMissing, LanesDiverged, QuotaExceeded
from tests.support.writers import Writer, said

OTHER = Digest(b"?" * 32)
NOWHERE = ConversationId(b"n" * 32)
EVE = Writer(9).public


@dataclass
class Desk:
    """A hub with one conversation of Ada's, and the messages it sends on her link."""

    ada: Writer = field(default_factory=lambda: Writer(1))
    sent: list[Message] = field(default_factory=list)
    shelf: MemoryShelf = field(default_factory=MemoryShelf)

    def __post_init__(self) -> None:
        self.genesis = self.ada.genesis()
        self.id = self.genesis.conversation
        self.line: list[Entry] = [self.genesis]
        for number in range(3):
            self.line.append(self.ada.write(self.id, said(str(number)), parents=self.line[-1:]))
        self.held = Conversation.restore(self.id, self.line)
        self.shelf.add(self.held)
        self.out = EffectsBuilder()
        self.side = HubSide(
            self.shelf,
            send=lambda message, _out: self.sent.append(message),
            may_create=lambda _key: True,
            entries_max=None,
        )

    def receive(self, message: Message, peer: PublicKey | None = None) -> list[Message]:
        """Return the messages sent in answer, with or without credit."""
        self.sent.clear()
        self.side.receive(message, peer or self.ada.public, self.out, 0.0)
        return list(self.sent)

    def pumped(self, peer: PublicKey | None = None) -> list[Message]:
        self.sent.clear()
        self.side.pump(peer or self.ada.public, self.out, may_send=lambda: True)
        return list(self.sent)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_stranger_cannot_detect_conversations(desk: Desk) -> None:
    (mine,) = desk.receive(Open(desk.id, OTHER), EVE)
    (none,) = desk.receive(Open(NOWHERE, OTHER), EVE)
    assert isinstance(mine, Fault)
    assert isinstance(none, Fault)
    assert mine.reason == ConversationUnknown.reason
    assert replace(mine, conversation=None) == replace(none, conversation=None)
    assert not desk.side.channels


def test_equal_digests_need_no_heads(desk: Desk) -> None:
    digest = desk.held.log.digest
    assert desk.receive(Open(desk.id, digest)) == [Opened(desk.id, digest, True)]
    assert desk.side.channels[desk.id].is_open


def test_another_digest_is_answered_with_heads(desk: Desk) -> None:
    log = desk.held.log
    assert desk.receive(Open(desk.id, OTHER)) == [Opened(desk.id, log.digest, False, log.heads())]
    assert not desk.side.channels[desk.id].is_open


def test_in_a_live_exchange_a_digest_is_answered_by_a_digest(desk: Desk) -> None:
    desk.receive(Open(desk.id, desk.held.log.digest))
    assert desk.receive(Open(desk.id, OTHER)) == [Opened(desk.id, desk.held.log.digest, False)]


def test_heads_are_answered_with_the_missing_entries(desk: Desk) -> None:
    desk.receive(Open(desk.id, OTHER, (desk.genesis.position, desk.line[1].position)))
    assert desk.pumped() == [Entries(desk.id, tuple(desk.line[2:]))]


def test_where_lanes_diverge_one_is_named_and_all_ids_are_sent(desk: Desk) -> None:
    twin = Writer(1)
    twin.genesis()
    other = twin.write(desk.id, said("another epoch"), parents=[desk.genesis])
    answer = desk.receive(Open(desk.id, OTHER, (desk.genesis.position, other.position)))
    faults = [m for m in answer if isinstance(m, Fault)]
    assert [(f.reason, f.entry) for f in faults] == [(LanesDiverged.reason, other.id)]
    assert desk.pumped() == [Ids(desk.id, tuple(sorted(e.id for e in desk.line)))]


def test_missing_bodies_are_asked_for(desk: Desk) -> None:
    bare = replace(desk.line[1], body=None)
    desk.shelf.add(Conversation.restore(desk.id, [desk.genesis, bare, *desk.line[2:]]))
    answer = desk.receive(Open(desk.id, OTHER))
    (fault,) = (m for m in answer if isinstance(m, Fault))
    assert (fault.reason, fault.missing) == (EntriesMissing.reason, (bare.id,))


def test_an_ack_names_the_last_of_each_lane(desk: Desk) -> None:
    answer = desk.receive(Entries(desk.id, tuple(desk.line)))
    assert answer == [Ack(desk.id, tuple(sorted([desk.genesis.id, desk.line[-1].id])))]


def test_a_known_entry_is_acked_and_not_persisted_again(desk: Desk) -> None:
    new = desk.ada.write(desk.id, said("new"), parents=desk.line[-1:])
    assert desk.receive(Entries(desk.id, (desk.line[-1], new))) == [Ack(desk.id, (new.id,))]
    assert desk.out.persist == [new]


def test_conversations_on_one_link_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONVERSATIONS_PER_LINK_MAX", 0)
    (fault,) = desk.receive(Open(desk.id, OTHER))
    assert isinstance(fault, Fault)
    assert fault.reason == QuotaExceeded.reason


def test_an_open_conversation_is_opened_again_whatever_the_bound(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONVERSATIONS_PER_LINK_MAX", 1)
    digest = desk.held.log.digest
    for _ in range(2):
        assert desk.receive(Open(desk.id, digest)) == [Opened(desk.id, digest, True)]


def test_membership_is_checked_at_every_delivery(desk: Desk) -> None:
    desk.receive(Open(desk.id, OTHER, ()))
    (close,) = desk.pumped(EVE)
    assert isinstance(close, Close)
    assert close.fault is not None
    assert close.fault.reason == ConversationUnknown.reason
    assert not desk.side.channels
    assert desk.pumped() == []


def test_a_refusal_by_the_client_is_only_reported(desk: Desk) -> None:
    desk.receive(Open(desk.id, desk.held.log.digest))
    fault = Fault.of(ConversationUnknown(), desk.id)
    assert desk.receive(fault) == []
    assert desk.side.channels[desk.id].is_open
    assert [getattr(event, "fault", None) for event in desk.out.deliver] == [fault]


def test_a_reader_that_opens_again_with_heads_gets_the_drafts_from_their_start(desk: Desk) -> None:
    request = desk.line[-1].id
    stream = desk.held.drafts[request] = DraftStream(desk.id, request, 1)
    draft = Draft(desk.id, request, 1, 0, (7,), 0, b"a", extend_digest(stream.digest, (7,)))
    assert stream.receive(draft)
    digest, heads = desk.held.log.digest, tuple(desk.held.log.heads())
    for again, expected in ((heads, [draft]), (None, []), (heads, [draft])):
        desk.receive(Open(desk.id, digest, again, drafts=True))
        assert desk.pumped() == expected
