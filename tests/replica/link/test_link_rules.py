"""One test per rule of the link, over real cores on both sides (spec/04-link)."""

from dataclasses import replace

import pytest

from replica import limits
from replica.ids import ConversationId, Digest
from replica.link.events import EntriesAcked, LinkClosed, SyncState
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
    Message,
    Open,
    Opened,
    Ping,
    Pong,
    Welcome,
)
from replica.log.body import Member, Revocation
from replica.log.log import Admitted
from syncd.policy import Policy
from tests.support.scenes import Scene
from tests.support.town import HUB_KEY, Citizen, Town, faults_of
from tests.support.writers import Writer, said


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- greeting ------------------------------------------------------------------------


def test_nothing_precedes_the_greeting() -> None:
    town = Town()
    ada = town.citizen(Writer(1))
    town.to_hub.clear()
    ada.send(Ping(1))
    town.run()
    assert faults_of(ada) == ["LINK_OUT_OF_ORDER"]
    assert town.closed == [ada.link_id]


def test_a_hub_answers_hello_with_its_limits_and_key() -> None:
    town = Town()
    ada = town.citizen(Writer(1))
    town.run()
    [welcome] = [m for m in ada.received if isinstance(m, Welcome)]
    assert (welcome.version, welcome.hub_key) == (1, HUB_KEY)
    assert welcome.frame_bytes_max == limits.FRAME_BYTES_MAX
    assert welcome.credit_bytes == limits.CREDIT_BYTES


def test_without_a_common_version_the_link_ends() -> None:
    town = Town()
    ada = Citizen(town, Writer(1))
    ada.connect(Hello((2, 3)))
    town.run()
    assert faults_of(ada) == ["VERSION_UNSUPPORTED"]


def test_a_message_of_the_wrong_direction_ends_the_link() -> None:
    town = Town()
    ada = town.citizen(Writer(1))
    town.run()
    town.perform(town.hub.receive(ada.link_id, Ack(ConversationId(bytes(32)), ()), 0.0))
    town.run()
    assert faults_of(ada) == ["LINK_OUT_OF_ORDER"]


def test_a_follower_is_told_of_its_conversations(scene: Scene) -> None:
    late = Citizen(scene.town, scene.bob.writer)
    late.connect(Hello((1,), follow=True))
    scene.town.run()
    [listing] = [m for m in late.received if isinstance(m, Listing)]
    assert [item.conversation for item in listing.items] == [scene.id]


# --- credit and frames -------------------------------------------------------------------


def test_a_sender_stops_at_its_credit(scene: Scene) -> None:
    scene.town.drop = lambda message: isinstance(message, (Credit, Opened, Ack))
    big = said("x" * 400_000)
    last = scene.genesis
    before = len(scene.ada.sent)
    for _ in range(12):
        last = scene.ada.writer.write(scene.id, big, parents=[last])
        scene.ada.append(last)
        scene.town.run()
    frames = [m for m in scene.ada.sent[before:] if isinstance(m, Entries)]
    sent = sum(e.size_bytes for m in frames for e in m.entries)
    assert sent <= limits.CREDIT_BYTES + limits.FRAME_BYTES_MAX
    scene.town.drop = lambda _message: False
    scene.town.wait(limits.HEARTBEAT_S)
    scene.town.wait(limits.RESYNC_S)
    assert scene.at_hub(last)


def test_who_sends_beyond_its_credit_is_cut_off(scene: Scene) -> None:
    entry = scene.ada.writer.write(scene.id, said("x" * 500_000), parents=[scene.genesis])
    for _ in range(10):
        scene.ada.send(Entries(scene.id, (entry,)))
    scene.town.to_clients.clear()
    link = scene.town.hub.links[scene.ada.link_id]
    link._grant = lambda _out: None  # type: ignore[method-assign]  # a hub that gives none
    scene.town.run()
    assert "CREDIT_EXCEEDED" in faults_of(scene.ada)
    assert scene.ada.link_id in scene.town.closed


def test_lost_credit_comes_back_with_the_next_beat(scene: Scene) -> None:
    scene.town.wait(limits.HEARTBEAT_S)
    limit = max(m.limit_bytes for m in scene.ada.received if isinstance(m, Pong))
    assert limit >= limits.CREDIT_BYTES
    assert scene.ada.link._sent_limit == limit


# --- opening -----------------------------------------------------------------------------


def test_equal_digests_settle_an_open(scene: Scene) -> None:
    again = Citizen(scene.town, scene.ada.writer)
    again.shelf = scene.ada.shelf
    again.connect()
    scene.town.run()
    acked = scene.ada.held(scene.id).log.heads()
    again.open(scene.id, acked=acked)
    scene.town.run()
    [opened] = [m for m in again.received if isinstance(m, Opened)]
    assert opened.equal
    assert opened.heads is None
    assert again.link.exchange.channels[scene.id].state is SyncState.SYNCHRONIZED
    [asked] = [m for m in again.sent if isinstance(m, Open)]
    assert asked.heads is None


def test_a_strange_and_an_absent_conversation_get_the_same_answer(scene: Scene) -> None:
    eve = scene.town.citizen(Writer(3))
    scene.town.run()
    for conversation in (scene.id, ConversationId(b"\x07" * 32)):
        eve.send(Open(conversation, Digest(bytes(32)), (), True))
    scene.town.run()
    first, second = [m for m in eve.received if isinstance(m, Fault)]
    assert first.reason == "CONVERSATION_NOT_FOUND"
    assert replace(first, conversation=None) == replace(second, conversation=None)


def test_each_side_sends_what_the_other_lacks(scene: Scene) -> None:
    mine = scene.say(scene.ada)
    scene.town.run()
    note = scene.bob.writer.write(scene.id, said("y"), parents=[scene.genesis])
    fresh = Citizen(scene.town, scene.bob.writer)
    fresh.hold(*[e for e in scene.town.persisted if e.id != mine.id], note)
    fresh.connect()
    scene.town.run()
    fresh.open(scene.id)
    scene.town.run()
    assert mine.id in fresh.held(scene.id).log.entries
    assert scene.at_hub(note)
    assert fresh.held(scene.id).log.digest == scene.town.hub.shelf[scene.id].log.digest


def test_a_lost_hub_is_seeded_by_a_member(scene: Scene) -> None:
    word = scene.say(scene.ada)
    scene.town.run()
    scene.town.hub.forget(scene.id)
    again = Citizen(scene.town, scene.ada.writer)
    again.shelf = scene.ada.shelf
    again.connect()
    scene.town.run()
    again.open(scene.id)
    scene.town.run()
    scene.town.wait(limits.RESYNC_S)
    assert scene.at_hub(word)
    assert again.link.exchange.channels[scene.id].state is SyncState.SYNCHRONIZED


def test_only_whom_the_policy_names_creates(scene: Scene) -> None:
    town = Town(Policy(creators=frozenset({scene.ada.writer.public})))
    eve = town.citizen(Writer(3))
    genesis = eve.writer.genesis()
    town.run()
    eve.send(Entries(genesis.conversation, (genesis,)))
    town.run()
    assert faults_of(eve) == ["CREATE_FORBIDDEN"]
    assert town.hub.shelf == {}


def test_diverged_lanes_are_told_and_repaired_by_ids(scene: Scene) -> None:
    twin = scene.bob.writer.restored()
    left = scene.bob.writer.write(scene.id, said("left"), parents=[scene.genesis])
    right = twin.write(scene.id, said("right"), parents=[scene.genesis])
    first, second = Citizen(scene.town, scene.bob.writer), Citizen(scene.town, twin)
    for citizen, entry in ((first, left), (second, right)):
        citizen.hold(*scene.ada.held(scene.id).log.entries.values(), entry)
        citizen.connect()
        scene.town.run()
        citizen.open(scene.id)
        scene.town.run()
    assert "LANES_DIVERGED" in faults_of(second)
    assert any(isinstance(m, Ids) for m in second.sent)
    assert scene.at_hub(left)
    assert scene.at_hub(right)
    log = second.held(scene.id).log
    assert {left.id, right.id} <= log.entries.keys()
    assert log.equivocations() == [(left.header.lane, 0, tuple(sorted([left.id, right.id])))]


# --- entries and acks ----------------------------------------------------------------------


def test_an_ack_names_what_was_persisted_before(scene: Scene) -> None:
    entry = scene.say(scene.ada)
    scene.town.run()
    assert entry in scene.town.persisted
    acks = [e for e in scene.ada.events if isinstance(e, EntriesAcked)]
    assert entry.id in {p.id for ack in acks for p in ack.positions}
    assert scene.state(scene.ada) is SyncState.SYNCHRONIZED


def test_effects_put_the_disk_before_the_wire(scene: Scene) -> None:
    entry = scene.ada.writer.write(scene.id, said("x"), parents=[scene.genesis])
    effects = scene.ada.link.append(entry, 0.0)
    assert effects.persist == (entry,)
    assert [m for m in effects.send if isinstance(m, Entries)]
    hub = scene.town.hub.receive(scene.ada.link_id, Entries(scene.id, (entry,)), 0.0)
    assert hub.persist == (entry,)
    assert [m for _, m in hub.send if isinstance(m, Ack)]


def test_a_doubled_entry_is_acked_and_kept_once(scene: Scene) -> None:
    entry = scene.say(scene.ada)
    scene.town.run()
    before = len(scene.town.persisted)
    scene.ada.send(Entries(scene.id, (entry,)))
    scene.town.run()
    assert len(scene.town.persisted) == before
    acks = [m for m in scene.ada.received if isinstance(m, Ack)]
    assert acks[-1].ids == (entry.id,)


def test_a_lost_entry_is_sent_again_after_a_while(scene: Scene) -> None:
    scene.town.drop = lambda message: isinstance(message, Entries)
    entry = scene.say(scene.ada)
    scene.town.run()
    assert not scene.at_hub(entry)
    scene.town.drop = lambda _message: False
    scene.town.wait(limits.RESYNC_S)
    assert scene.at_hub(entry)
    assert scene.state(scene.ada) is SyncState.SYNCHRONIZED


def test_what_waits_is_named_and_comes(scene: Scene) -> None:
    first = scene.ada.writer.write(scene.id, said("1"), parents=[scene.genesis])
    second = scene.ada.writer.write(scene.id, said("2"), parents=[first])
    scene.ada.hold(first, second)
    scene.ada.send(Entries(scene.id, (second,)))
    scene.town.run()
    fault = [m for m in scene.ada.received if isinstance(m, Fault)][-1]
    assert (fault.reason, fault.missing) == ("ENTRIES_MISSING", (first.id,))
    assert scene.at_hub(second)


def test_a_refused_entry_is_named_with_its_reason(scene: Scene) -> None:
    entry = scene.ada.writer.write(scene.id, said("x"), parents=[scene.genesis])
    scene.ada.send(Entries(scene.id, (replace(entry, signature=bytes(64)),)))
    scene.town.run()
    fault = [m for m in scene.ada.received if isinstance(m, Fault)][-1]
    assert (fault.reason, fault.entry) == ("SIGNATURE_INVALID", entry.id)
    assert scene.ada.link.phase is Phase.READY


def test_what_waits_is_bounded_per_link(scene: Scene) -> None:
    absent = scene.ada.writer.write(scene.id, said("absent"), parents=[scene.genesis])
    last = absent
    for _ in range(11):
        last = scene.ada.writer.write(scene.id, said("x" * 400_000), parents=[last])
        frame = Entries(scene.id, (last,))
        scene.town.perform(scene.town.hub.receive(scene.ada.link_id, frame, 0.0))
    scene.town.run()
    assert "PENDING_FULL" in faults_of(scene.ada)
    assert scene.town.hub.shelf[scene.id].log.pending_bytes <= limits.PENDING_LINK_BYTES_MAX


def test_what_a_link_delivered_leaves_with_it(scene: Scene) -> None:
    absent = scene.ada.writer.write(scene.id, said("absent"), parents=[scene.genesis])
    entry = scene.ada.writer.write(scene.id, said("x"), parents=[absent])
    scene.town.perform(scene.town.hub.receive(scene.ada.link_id, Entries(scene.id, (entry,)), 0.0))
    log = scene.town.hub.shelf[scene.id].log
    assert entry.id in log.pending
    scene.town.hub.disconnect(scene.ada.link_id)
    assert not log.pending


def test_unknown_kinds_and_fields_pass_a_relay_unchanged(scene: Scene) -> None:
    odd = scene.ada.writer.write(scene.id, said("x"), parents=[scene.genesis], kind=99)
    scene.bob.open(scene.id)
    scene.town.run()
    scene.ada.append(odd)
    scene.town.run()
    assert scene.bob.held(scene.id).log.entries[odd.id] == odd


# --- fan-out and membership --------------------------------------------------------------------


def test_what_one_link_brings_reaches_the_others(scene: Scene) -> None:
    scene.bob.open(scene.id)
    scene.town.run()
    entry = scene.say(scene.ada)
    scene.town.run()
    assert entry.id in scene.bob.held(scene.id).log.entries


def test_membership_is_checked_at_every_delivery(scene: Scene) -> None:
    scene.bob.open(scene.id)
    scene.town.run()
    body = Member(Revocation(scene.bob.writer.public))
    heads = scene.ada.held(scene.id).log.membership_heads()
    parents = [scene.ada.held(scene.id).log.entries[i] for i in heads]
    scene.ada.append(scene.ada.writer.write(scene.id, body, parents=parents))
    secret = scene.say(scene.ada)
    scene.town.run()
    assert secret.id not in scene.bob.held(scene.id).log.entries
    assert faults_of(scene.bob)[-1] == "CONVERSATION_NOT_FOUND"


def test_one_hubs_entries_have_a_quota() -> None:
    scene = Scene(Policy(entries_max=2))
    scene.say(scene.ada)
    scene.town.run()
    assert "QUOTA_EXCEEDED" in faults_of(scene.ada)


# --- time, ends --------------------------------------------------------------------------------


def test_a_quiet_link_beats_and_an_idle_one_ends(scene: Scene) -> None:
    scene.town.wait(limits.HEARTBEAT_S)
    assert any(isinstance(m, Ping) for m in scene.ada.sent)
    scene.town.drop = lambda _message: True
    scene.town.wait(limits.IDLE_TIMEOUT_S)
    assert scene.ada.link.phase is Phase.CLOSED
    assert scene.ada.link_id in scene.town.closed


def test_every_wait_has_a_deadline(scene: Scene) -> None:
    assert scene.ada.link.handle_deadline(scene.town.now).wake_at is not None
    assert (
        Link(Side.HUB, key=HUB_KEY, peer=None, shelf={}, now=3.0).handle_deadline(3.0).wake_at
        == 3.0 + limits.IDLE_TIMEOUT_S
    )


def test_a_client_that_differs_in_silence_becomes_desynchronized(scene: Scene) -> None:
    log = scene.ada.held(scene.id).log
    lost = Writer(1, epoch=7).write(scene.id, said("x"), parents=[scene.genesis])
    assert isinstance(scene.town.hub.shelf[scene.id].admit(lost), Admitted)
    scene.town.wait(limits.HEARTBEAT_S)
    assert lost.id in log.entries
    states = [e.state for e in scene.ada.events if hasattr(e, "state")]
    assert SyncState.DESYNCHRONIZED in states
    assert states[-1] is SyncState.SYNCHRONIZED


def test_leaving_ends_one_conversation_and_closing_the_link(scene: Scene) -> None:
    scene.ada.perform(scene.ada.link.leave(scene.id))
    scene.town.run()
    assert scene.id not in scene.town.hub.links[scene.ada.link_id].exchange.channels
    scene.ada.perform(scene.ada.link.close())
    scene.town.run()
    assert scene.ada.link_id in scene.town.closed
    assert scene.ada.events[-1] == LinkClosed(None)
    assert Close(None, None) in scene.ada.sent


def test_a_pushed_entry_is_durable_or_refused() -> None:
    scene = Scene()
    good = scene.ada.writer.write(scene.id, said("x"), parents=[scene.genesis])
    waiting = scene.ada.writer.write(scene.id, said("y"), parents=[good])
    message: Message = Entries(scene.id, (waiting,))
    assert isinstance(message, Entries)
    _, outcomes = scene.town.hub.push(scene.ada.writer.public, message, 0.0)
    assert outcomes[waiting.id] is not None
    effects, outcomes = scene.town.hub.push(
        scene.ada.writer.public, Entries(scene.id, (good, waiting)), 0.0
    )
    assert outcomes == {good.id: None, waiting.id: None}
    assert effects.persist == (good, waiting)
