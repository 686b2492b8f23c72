"""One test per rule of the link, over real cores on both sides (spec/04-link)."""

from dataclasses import replace

import pytest

from replica import limits
from replica.conversation.shelf import MemoryShelf
from replica.ids import ConversationId, Digest
from replica.link.events import EntriesAcked, LinkClosed, StateChanged, SyncState
from replica.link.exchange import Side
from replica.link.link import Link, Phase
from replica.link.messages import (
    Ack,
    Close,
    Credit,
    Entries,
    Fault,
    Hello,
    Ids,
    Listing,
    Open,
    Opened,
    Ping,
    Pong,
    Welcome,
)
from replica.log.admission import Admitted
from replica.refusals import StoreFull
from replica.testing import Network, Peer, of, shelf_of
from syncd.calls.queries import Held, Unknown, fate_of
from syncd.hub import Hub
from syncd.policy import Policy
from tests.support.scene import HUB_KEY, Scene
from tests.support.writers import Writer, said


@pytest.fixture
def scene() -> Scene:
    return Scene().begin()


@pytest.fixture
def network() -> Network:
    return Network(Hub(HUB_KEY, Policy()))


def again(scene: Scene) -> Peer:
    """Link the owner a second time, with its stored entries."""
    return scene.network.connect(scene.writer.public, shelf=scene.client.shelf)


# --- greeting ------------------------------------------------------------------------


def test_nothing_precedes_the_greeting(network: Network) -> None:
    network.loses = lambda message: isinstance(message, Hello)
    ada = network.connect(Writer(1).public)
    ada.send(Ping(1))
    assert ada.faults == ["LINK_OUT_OF_ORDER"]
    assert network.closed == [ada.link_id]


def test_a_hub_answers_hello_with_its_limits_and_key(network: Network) -> None:
    (welcome,) = of(Welcome, network.connect(Writer(1).public).received)
    assert (welcome.version, welcome.hub_key) == (1, HUB_KEY)
    assert welcome.frame_bytes_max == limits.FRAME_BYTES_MAX
    assert welcome.credit_bytes == limits.CREDIT_BYTES


def test_without_a_common_version_the_link_ends(network: Network) -> None:
    assert network.connect(Writer(1).public, hello=Hello((2, 3))).faults == ["VERSION_UNSUPPORTED"]


def test_a_message_of_the_wrong_direction_ends_the_link(network: Network) -> None:
    ada = network.connect(Writer(1).public)
    ack = Ack(ConversationId(bytes(32)), ())
    network.perform(network.hub.receive(ada.link_id, ack, 0.0))
    assert ada.faults == ["LINK_OUT_OF_ORDER"]


def test_a_follower_gets_a_list_of_its_conversations(scene: Scene) -> None:
    bob = Writer(2)
    scene.join(bob)
    late = scene.network.connect(bob.public, hello=Hello((1,), follow=True))
    (listing,) = of(Listing, late.received)
    assert [item.conversation for item in listing.items] == [scene.id]


# --- credit and frames -------------------------------------------------------------------


def test_a_sender_stops_at_its_credit(scene: Scene) -> None:
    scene.network.loses = lambda message: isinstance(message, (Credit, Opened, Ack))
    before = len(scene.client.sent)
    for _ in range(12):
        last = scene.say("x" * 400_000)
    frames = of(Entries, scene.client.sent[before:])
    sent = sum(e.size_bytes for frame in frames for e in frame.entries)
    assert sent <= limits.CREDIT_BYTES + limits.FRAME_BYTES_MAX
    scene.network.loses = lambda _message: False
    scene.network.advance(limits.HEARTBEAT_S)
    scene.network.advance(limits.RESYNC_S)
    assert scene.at_hub(last)


def test_a_sender_beyond_its_credit_is_disconnected(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = scene.writer.write(scene.id, said("x" * 500_000), parents=[scene.genesis])
    link = scene.hub.links[scene.client.link_id]
    monkeypatch.setattr(link.flow, "grant", lambda: None)  # a hub that gives no credit
    scene.client.send(*[Entries(scene.id, (entry,))] * 10)
    assert "CREDIT_EXCEEDED" in scene.client.faults
    assert scene.client.link_id in scene.network.closed


def test_lost_credit_is_restored_by_the_next_heartbeat(scene: Scene) -> None:
    scene.network.advance(limits.HEARTBEAT_S)
    limit = max(pong.limit_bytes for pong in of(Pong, scene.client.received))
    assert limit >= limits.CREDIT_BYTES
    assert scene.client.link.flow.sent_limit == limit


# --- opening -----------------------------------------------------------------------------


def test_equal_digests_complete_an_open(scene: Scene) -> None:
    peer = again(scene)
    peer.open(scene.id, acked=scene.held.log.heads())
    (opened,) = of(Opened, peer.received)
    assert opened.equal
    assert opened.heads is None
    assert scene.state(peer) is SyncState.SYNCHRONIZED
    (asked,) = of(Open, peer.sent)
    assert asked.heads is None


def test_a_forbidden_and_an_absent_conversation_get_the_same_answer(scene: Scene) -> None:
    eve = scene.network.connect(Writer(3).public)
    for conversation in (scene.id, ConversationId(b"\x07" * 32)):
        eve.send(Open(conversation, Digest(bytes(32)), (), True))
    first, second = of(Fault, eve.received)
    assert first.reason == "CONVERSATION_NOT_FOUND"
    assert replace(first, conversation=None) == replace(second, conversation=None)


def test_each_side_sends_the_missing_entries(scene: Scene) -> None:
    bob = Writer(2)
    scene.join(bob)
    mine = scene.say()
    note = bob.write(scene.id, said("y"), parents=[scene.genesis])
    known = [entry for entry in scene.network.stored if entry.id != mine.id]
    fresh = scene.network.connect(bob.public, shelf=shelf_of(*known, note))
    fresh.open(scene.id)
    assert mine.id in fresh.held(scene.id).log.entries
    assert scene.at_hub(note)
    assert fresh.held(scene.id).log.digest == scene.held.log.digest


def test_a_hub_that_lost_its_log_is_seeded_by_a_member(scene: Scene) -> None:
    word = scene.say()
    scene.hub.disk_refused({scene.id}, Fault.of(StoreFull()))
    scene.hub.load(scene.id, ())  # its store is empty
    peer = again(scene)
    peer.open(scene.id)
    assert scene.at_hub(word)
    assert scene.state(peer) is SyncState.SYNCHRONIZED


def test_only_keys_of_the_policy_create() -> None:
    network = Network(Hub(HUB_KEY, Policy(creators=frozenset({Writer(1).public}))))
    eve = network.connect(Writer(3).public)
    genesis = Writer(3).genesis()
    eve.send(Entries(genesis.conversation, (genesis,)))
    assert eve.faults == ["CREATE_FORBIDDEN"]
    assert not network.stored


def test_diverged_lanes_are_reported_and_repaired_by_ids(scene: Scene) -> None:
    bob = Writer(2)
    scene.join(bob)
    twin = bob.restored()
    left = bob.write(scene.id, said("left"), parents=[scene.genesis])
    right = twin.write(scene.id, said("right"), parents=[scene.genesis])
    common = tuple(scene.held.log.entries.values())
    for entry in (left, right):
        peer = scene.network.connect(bob.public, shelf=shelf_of(*common, entry))
        peer.open(scene.id)
    assert "LANES_DIVERGED" in peer.faults
    assert of(Ids, peer.sent)
    assert scene.at_hub(left)
    assert scene.at_hub(right)
    log = peer.held(scene.id).log
    assert {left.id, right.id} <= log.entries.keys()
    assert log.equivocations() == [(left.header.lane, 0, tuple(sorted([left.id, right.id])))]


# --- entries and acks ----------------------------------------------------------------------


def test_an_ack_names_entries_persisted_before(scene: Scene) -> None:
    entry = scene.say()
    assert entry in scene.network.stored
    acks = of(EntriesAcked, scene.client.events)
    assert entry.id in {p.id for ack in acks for p in ack.positions}
    assert scene.state() is SyncState.SYNCHRONIZED


def test_effects_persist_before_they_send(scene: Scene) -> None:
    (entry,) = scene.chain(1)
    effects = scene.client.link.append(entry, 0.0)
    assert effects.persist == (entry,)
    assert of(Entries, effects.send)
    at_hub = scene.hub.receive(scene.client.link_id, Entries(scene.id, (entry,)), 0.0)
    assert at_hub.persist == (entry,)
    assert of(Ack, (frame for _, frame in at_hub.send))


def test_a_doubled_entry_is_acked_and_kept_once(scene: Scene) -> None:
    entry = scene.say()
    before = len(scene.network.stored)
    scene.client.send(Entries(scene.id, (entry,)))
    assert len(scene.network.stored) == before
    assert of(Ack, scene.client.received)[-1].ids == (entry.id,)


def test_a_lost_entry_is_sent_again_after_a_while(scene: Scene) -> None:
    scene.network.loses = lambda message: isinstance(message, Entries)
    entry = scene.say()
    assert not scene.at_hub(entry)
    scene.network.loses = lambda _message: False
    scene.network.advance(limits.RESYNC_S)
    assert scene.at_hub(entry)
    assert scene.state() is SyncState.SYNCHRONIZED


def test_missing_entries_are_named_and_sent(scene: Scene) -> None:
    first, second = scene.chain(2)
    peer = scene.reconnect(scene.genesis, first, second)
    scene.network.loses = lambda message: isinstance(message, Entries)
    peer.open(scene.id)
    scene.network.loses = lambda _message: False
    peer.send(Entries(scene.id, (second,)))
    fault = of(Fault, peer.received)[-1]
    assert (fault.reason, fault.missing) == ("ENTRIES_MISSING", (first.id,))
    assert scene.at_hub(second)


def test_a_refused_entry_is_named_with_its_reason(scene: Scene) -> None:
    (entry,) = scene.chain(1)
    scene.client.send(Entries(scene.id, (replace(entry, signature=bytes(64)),)))
    fault = of(Fault, scene.client.received)[-1]
    assert (fault.reason, fault.entry) == ("SIGNATURE_INVALID", entry.id)
    assert scene.client.link.phase is Phase.READY


def test_pending_bytes_are_bounded_per_link(scene: Scene) -> None:
    last = scene.writer.write(scene.id, said("absent"), parents=[scene.genesis])
    for _ in range(11):
        last = scene.writer.write(scene.id, said("x" * 400_000), parents=[last])
        frame = Entries(scene.id, (last,))
        scene.network.perform(scene.hub.receive(scene.client.link_id, frame, 0.0))
    assert "PENDING_FULL" in scene.client.faults
    assert scene.held.log.admission.pending_bytes <= limits.PENDING_LINK_BYTES_MAX


def test_pending_entries_of_a_link_end_with_it(scene: Scene) -> None:
    _, entry = scene.chain(2)
    scene.client.send(Entries(scene.id, (entry,)))
    assert entry.id in scene.held.log.pending
    scene.hub.disconnect(scene.client.link_id)
    assert not scene.held.log.pending


def test_unknown_kinds_and_fields_pass_a_relay_unchanged(scene: Scene) -> None:
    bob = scene.join(Writer(2))
    odd = scene.writer.write(scene.id, said("x"), parents=[scene.genesis], kind=99)
    scene.client.append(odd)
    assert bob.held(scene.id).log.entries[odd.id] == odd


# --- fan-out and membership --------------------------------------------------------------------


def test_entries_of_one_link_are_sent_to_the_others(scene: Scene) -> None:
    bob = scene.join(Writer(2))
    entry = scene.say()
    assert entry.id in bob.held(scene.id).log.entries


def test_membership_is_checked_at_every_delivery(scene: Scene) -> None:
    bob = scene.join(Writer(2))
    scene.client.append(scene.revoke(bob.public))
    secret = scene.say()
    assert secret.id not in bob.held(scene.id).log.entries
    assert bob.faults[-1] == "CONVERSATION_NOT_FOUND"


def test_one_hubs_entries_have_a_quota() -> None:
    scene = Scene(Policy(entries_max=1)).begin()
    scene.say()
    assert "QUOTA_EXCEEDED" in scene.client.faults


# --- time and end ------------------------------------------------------------------------------


def test_a_link_has_heartbeats_and_ends_when_idle(scene: Scene) -> None:
    scene.network.advance(limits.HEARTBEAT_S)
    assert of(Ping, scene.client.sent)
    scene.network.loses = lambda _message: True
    scene.network.advance(limits.IDLE_TIMEOUT_S)
    assert scene.client.link.phase is Phase.CLOSED
    assert scene.client.link_id in scene.network.closed


def test_every_wait_has_a_deadline(scene: Scene) -> None:
    assert scene.client.link.handle_deadline(scene.network.now).wake_at is not None
    at_hub = Link(Side.HUB, key=HUB_KEY, peer=None, shelf=MemoryShelf(), now=3.0)
    assert at_hub.handle_deadline(3.0).wake_at == 3.0 + limits.IDLE_TIMEOUT_S


def test_an_unexplained_difference_makes_a_client_desynchronized(scene: Scene) -> None:
    lost = Writer(1, epoch=7).write(scene.id, said("x"), parents=[scene.genesis])
    assert isinstance(scene.held.admit(lost), Admitted)
    scene.network.advance(limits.HEARTBEAT_S)
    assert lost.id in scene.client.held(scene.id).log.entries
    states = [event.state for event in of(StateChanged, scene.client.events)]
    assert SyncState.DESYNCHRONIZED in states
    assert states[-1] is SyncState.SYNCHRONIZED


def test_leaving_ends_one_conversation_and_closing_the_link(scene: Scene) -> None:
    scene.client.perform(scene.client.link.leave(scene.id))
    assert scene.id not in scene.hub.links[scene.client.link_id].exchange.channels
    scene.client.send(Close(None, None))
    assert scene.client.link_id in scene.network.closed
    assert scene.client.events[-1] == LinkClosed(None)


def test_a_pushed_entry_is_durable_or_refused(scene: Scene) -> None:
    good, pending = scene.chain(2)
    _, outcomes = scene.hub.begin_push(scene.writer.public).whole(
        Entries(scene.id, (pending,)), 0.0
    )
    assert outcomes[pending.id] is not None
    effects, outcomes = scene.hub.begin_push(scene.writer.public).whole(
        Entries(scene.id, (good, pending)), 0.0
    )
    assert outcomes == {good.id: None, pending.id: None}
    assert effects.persist == (good, pending)


def test_one_query_resolves_what_became_of_a_pushed_entry(scene: Scene) -> None:
    good, later = scene.chain(2)
    other = Writer(1, epoch=8).write(scene.id, said("x"), parents=[scene.genesis])
    forged = replace(other, signature=bytes(64))
    for entry in (later, forged, good, later):
        _, outcomes = scene.hub.begin_push(scene.writer.public).whole(
            Entries(scene.id, (entry,)), 0.0
        )
        is_durable = outcomes[entry.id] is None
        assert isinstance(fate_of(scene.held, entry.id), Held if is_durable else Unknown)
    assert {good.id, later.id} < scene.held.log.entries.keys()
