"""The hub's own inputs: loading, Push, deletion, deadlines, the ends of links (spec/04-link §7)."""

from dataclasses import replace

import pytest

from replica import limits
from replica.ids import ConversationId, Digest, EntryId
from replica.link.events import EntriesAdmitted, EntryFailed
from replica.link.link import Phase
from replica.link.messages import Close, Entries, Fault, Hello, Listing, Open
from replica.log.body import Role
from replica.log.entry import Entry
from replica.refusals import (
    ConversationDeleted,
    ConversationUnknown,
    NotAllowed,
    SignatureInvalid,
    StoreFull,
)
from replica.testing import of
from syncd.calls.queries import Right
from syncd.hub import Hub
from syncd.links.fan_out import HubEffects
from syncd.policy import Policy
from tests.support.scene import HUB_KEY, Scene
from tests.support.writers import Writer

EVE = Writer(66)
HELLO = Hello((1,))


@pytest.fixture
def scene() -> Scene:
    return Scene().begin()


def push(scene: Scene, writer: Writer, *entries: Entry) -> dict[EntryId, Fault | None]:
    return scene.hub.begin_push(writer.public).whole(Entries(scene.id, entries), 0.0)[1]


def reasons(outcomes: dict[EntryId, Fault | None]) -> list[str]:
    return [fault.reason if fault is not None else "durable" for fault in outcomes.values()]


def gone(conversation: ConversationId) -> Fault:
    return Fault.of(ConversationDeleted(), conversation)


# --- loads and queries -----------------------------------------------------------


def test_a_hub_goes_on_from_its_store(scene: Scene):
    scene.say()
    again = Hub(HUB_KEY, Policy())
    again.load(scene.id, scene.network.stored)
    assert again.shelf[scene.id].log.digest == scene.held.log.digest


def test_a_query_without_a_link_follows_the_rules_of_queries(scene: Scene):
    reader = Writer(2)
    scene.client.append(scene.grant(reader.public, Role.READER))
    assert scene.hub.permitted(reader.public, scene.id) is scene.held
    with pytest.raises(NotAllowed):
        scene.hub.permitted(reader.public, scene.id, Right.WRITE_BLOBS)
    for conversation in (scene.id, ConversationId(b"?" * 32)):
        with pytest.raises(ConversationUnknown):
            scene.hub.permitted(EVE.public, conversation)


# --- push -------------------------------------------------------------------------


def test_a_push_returns_an_outcome_per_entry(scene: Scene):
    line = scene.chain(3)
    forged = Entry(line[0].header_bytes, bytes(64), line[0].body, line[0].id, line[0].header)
    assert reasons(push(scene, scene.writer, forged)) == ["SIGNATURE_INVALID"]
    message = Entries(scene.id, (line[0], line[2]))
    effects, outcomes = scene.hub.begin_push(scene.writer.public).whole(message, 0.0)
    assert effects.persist == (line[0],)
    assert reasons(outcomes) == ["durable", "ENTRIES_MISSING"]
    fault = outcomes[line[2].id]
    assert fault is not None
    assert fault.missing == (line[1].id,)


def test_a_push_keeps_no_pending_entries(scene: Scene):
    _, second = scene.chain(2)
    push(scene, scene.writer, second)
    assert not scene.held.log.pending


def test_a_push_of_an_entry_pending_on_another_link_is_not_called_durable(scene: Scene):
    _, second = scene.chain(2)
    scene.client.send(Entries(scene.id, (second,)))
    assert scene.held.log.pending
    assert reasons(push(scene, scene.writer, second)) == ["ENTRIES_MISSING"]


def test_a_push_again_is_the_same_push(scene: Scene):
    message = Entries(scene.id, tuple(scene.chain(1)))
    scene.hub.begin_push(scene.writer.public).whole(message, 0.0)
    effects, outcomes = scene.hub.begin_push(scene.writer.public).whole(message, 0.0)
    assert effects == HubEffects()
    assert reasons(outcomes) == ["durable"]


def test_a_stranger_can_push_nothing(scene: Scene):
    first, second = scene.chain(2)
    message = Entries(scene.id, (first, second))
    effects, outcomes = scene.hub.begin_push(EVE.public).whole(message, 0.0)
    assert reasons(outcomes) == ["CONVERSATION_NOT_FOUND"] * 2
    assert effects.persist == ()


# --- deletion -----------------------------------------------------------------------


def test_a_deleted_conversation_is_refused_as_deleted_to_anyone(scene: Scene):
    scene.hub.delete(scene.id)
    for writer in (scene.writer, EVE):
        with pytest.raises(ConversationDeleted):
            scene.hub.permitted(writer.public, scene.id)
        link_id = scene.hub.connect(writer.public, 0.0)
        scene.hub.receive(link_id, HELLO, 0.0)
        for message in (Open(scene.id, Digest(bytes(32))), Entries(scene.id, (scene.genesis,))):
            effects = scene.hub.receive(link_id, message, 0.0)
            assert effects.persist == ()
            assert [(to, f.message) for to, f in effects.send] == [(link_id, gone(scene.id))]
    assert scene.hub.shelf == {}


def test_a_deletion_closes_the_conversation_on_its_links(scene: Scene):
    other = scene.network.connect(scene.writer.public)
    scene.network.perform(scene.hub.delete(scene.id))
    assert of(Close, scene.client.received) == [Close(scene.id, gone(scene.id))]
    assert of(Close, other.received) == []
    assert scene.client.link.phase is Phase.READY


def test_each_entry_pushed_to_a_deleted_conversation_is_refused(scene: Scene):
    good, broken = scene.chain(2)
    refused = ((broken.id, SignatureInvalid()),)
    scene.hub.delete(scene.id)
    for peer in (scene.writer.public, EVE.public):
        message = Entries(scene.id, (good,), refused)  # the decoder refused one
        effects, outcomes = scene.hub.begin_push(peer).whole(message, 0.0)
        assert outcomes == dict.fromkeys((good.id, broken.id), gone(scene.id))
        assert effects == HubEffects()


def test_a_deletion_concerns_one_conversation_and_may_come_before_it_is_known(scene: Scene):
    other = EVE.genesis()
    scene.hub.delete(other.conversation)
    assert scene.hub.deleted == {other.conversation}
    assert scene.hub.permitted(scene.writer.public, scene.id) is scene.held
    message = Entries(other.conversation, (other,))
    _, outcomes = scene.hub.begin_push(EVE.public).whole(message, 0.0)
    assert outcomes == {other.id: gone(other.conversation)}


def test_after_an_undone_deletion_the_conversation_is_admitted(scene: Scene):
    fault = Fault.of(StoreFull(), scene.id)
    deletion = scene.hub.delete(scene.id)
    assert not scene.hub.needs_load(scene.writer.public, scene.id)
    scene.network.perform(scene.hub.undelete(scene.id, deletion, fault))
    assert of(Close, scene.client.received) == [Close(scene.id, fault)]
    assert not scene.hub.deleted
    assert scene.hub.needs_load(scene.writer.public, scene.id)
    scene.hub.load(scene.id, scene.network.stored)
    assert scene.hub.permitted(scene.writer.public, scene.id) is scene.held


# --- ends -----------------------------------------------------------------------------


def test_an_idle_link_is_ended_and_the_others_stay(scene: Scene):
    others = [scene.join(Writer(number)) for number in (2, 3)]
    scene.network.silence(others[0])
    for _ in range(4):
        scene.network.advance(limits.HEARTBEAT_S)
    assert set(scene.hub.links) == {scene.client.link_id, others[1].link_id}


def test_leaving_a_conversation_ends_its_entries_not_the_link(scene: Scene):
    reader = scene.join(Writer(2))
    before = len(of(EntriesAdmitted, reader.events))
    reader.perform(reader.link.leave(scene.id))
    scene.say()
    assert len(of(EntriesAdmitted, reader.events)) == before
    assert not of(EntryFailed, reader.events)
    assert reader.link.phase is Phase.READY


# --- refused commits -------------------------------------------------------------------

FULL = Fault.of(StoreFull())


def test_a_conversation_the_disk_refused_is_closed_on_every_link(scene: Scene):
    others = [scene.join(Writer(number)) for number in (2, 3)]
    scene.network.perform(scene.hub.disk_refused({scene.id}, FULL))
    for peer in (scene.client, *others):
        assert of(Close, peer.received) == [Close(scene.id, replace(FULL, conversation=scene.id))]


def test_a_conversation_the_disk_refused_continues_from_its_stored_entries(scene: Scene):
    stored = tuple(scene.network.stored)
    refused = scene.say()
    scene.hub.disk_refused({scene.id}, FULL)
    assert scene.id not in scene.hub.shelf
    assert scene.hub.needs_load(scene.writer.public, scene.id)
    scene.hub.load(scene.id, stored)
    assert not scene.hub.needs_load(scene.writer.public, scene.id)
    assert not scene.at_hub(refused)


def test_after_a_refused_commit_anyone_causes_a_load_since_the_members_are_unknown(scene: Scene):
    scene.hub.disk_refused({scene.id}, FULL)
    assert scene.hub.needs_load(EVE.public, scene.id)
    assert not scene.hub.needs_load(EVE.public, ConversationId(b"?" * 32))


def test_a_conversation_of_which_nothing_was_stored_is_unknown_after_its_refusal(scene: Scene):
    scene.hub.disk_refused({scene.id}, FULL)
    scene.hub.load(scene.id, ())
    assert not scene.hub.needs_load(scene.writer.public, scene.id)
    with pytest.raises(ConversationUnknown):
        scene.hub.permitted(scene.writer.public, scene.id)


def test_a_refusal_brings_no_deleted_conversation_back(scene: Scene):
    scene.hub.delete(scene.id)
    assert scene.hub.disk_refused({scene.id}, FULL) == HubEffects()
    scene.hub.load(scene.id, scene.network.stored)
    assert scene.id not in scene.hub.shelf
    assert not scene.hub.needs_load(scene.writer.public, scene.id)


def test_of_two_loads_that_cross_the_first_one_counts(scene: Scene):
    stored = tuple(scene.network.stored)
    scene.hub.disk_refused({scene.id}, FULL)
    scene.hub.load(scene.id, stored)
    entry = scene.chain(1)[0]
    assert reasons(push(scene, scene.writer, entry)) == ["durable"]
    scene.hub.load(scene.id, stored)
    assert scene.at_hub(entry)


def test_a_conversation_is_listed_on_its_load_to_a_member_that_connected_before(scene: Scene):
    scene.client.append(scene.grant(EVE.public, Role.READER))
    stored = tuple(scene.network.stored)
    scene.hub.disk_refused({scene.id}, FULL)
    peer = scene.network.connect(EVE.public)
    assert not of(Listing, peer.received)
    scene.network.perform(scene.hub.load(scene.id, stored))
    (listing,) = of(Listing, peer.received)
    assert [item.conversation for item in listing.items] == [scene.id]


def test_a_message_of_an_ended_link_has_no_effects(scene: Scene):
    link_id = scene.hub.connect(EVE.public, 0.0)
    scene.hub.disconnect(link_id)
    scene.hub.disconnect(link_id)
    assert scene.hub.receive(link_id, HELLO, 0.0) == HubEffects()


def test_a_link_that_is_gone_leaves_nothing_behind(scene: Scene):
    _, waits = scene.chain(2)
    link_id = scene.hub.connect(scene.writer.public, 0.0, watches=True)
    for message in (HELLO, Open(scene.id, Digest(bytes(32))), Entries(scene.id, (waits,))):
        scene.hub.receive(link_id, message, 0.0)
    assert scene.held.log.pending
    scene.hub.disconnect(link_id)
    assert not scene.held.log.pending
    assert scene.hub.connected.watchers == set()
    assert scene.hub.connected.listed.keys() == {scene.client.link_id}
