"""The replica's core against a real hub core: following, reopening, acks, epochs, undoing."""

import pytest

from replica.conversation.author import Author
from replica.conversation.conversation import Conversation
from replica.conversation.shelf import MemoryShelf
from replica.core import ReplicaCore, pauses
from replica.errors import StoreError
from replica.ids import EntryId
from replica.link.events import EntryFailed, LinkClosed, StateChanged, SyncState
from replica.link.messages import Close, Entries, Fault, Hello, Open
from replica.log.body import Grant, Member, Role
from syncd.hub import Hub
from syncd.policy import Policy
from tests.support.core_scene import FRIEND, HUB, ME, OTHER_HUB, Scene
from tests.support.writers import said


def test_entries_written_without_a_link_are_durable_and_sent_with_the_next_one():
    scene = Scene()
    conversation = scene.create()
    entry = scene.write(conversation, "offline")
    assert scene.sent == []
    assert scene.core.holdings.unacked(conversation) == {EntryId(conversation), entry.id}
    scene.connect()
    assert len(scene.hub.shelf[conversation].log) == 2
    assert scene.core.holdings.unacked(conversation) == set()
    assert scene.states()[-1] is SyncState.RECONCILING, "the hub is asked before"
    scene.do(scene.core.handle_deadline(scene.now))
    assert scene.states()[-1] is SyncState.SYNCHRONIZED


def test_a_restart_with_acks_opens_with_a_digest_alone():
    scene = Scene()
    scene.connect()
    conversation = scene.create()
    scene.write(conversation, "one")
    scene.disconnect()
    later = Scene()
    later.hub, later.disk, later.saved = scene.hub, scene.disk, scene.saved
    later.core = ReplicaCore(
        ME.public, Hello((1,)), MemoryShelf(), HUB, is_own_epoch=lambda _: True
    )
    later.do(later.core.follow(conversation, 0.0, drafts=True))
    later.connect()
    (opening,) = later.of(Open)
    assert opening.heads is None
    assert later.of(Entries) == []
    assert later.loads == [conversation]


def test_the_acks_of_one_hub_say_nothing_of_another():
    scene = Scene()
    scene.connect()
    conversation = scene.create()
    scene.disconnect()
    assert scene.core.holdings.unacked(conversation) == set()
    scene.saved.clear()
    scene.hub = Hub(OTHER_HUB, Policy())
    scene.connect(OTHER_HUB)
    assert conversation in scene.loads, "its acks are read again"
    assert len(scene.hub.shelf[conversation].log) == 1


def test_a_followed_conversation_is_loaded_once_before_it_is_opened():
    scene = Scene()
    genesis = ME.genesis()
    conversation = genesis.conversation
    first = scene.core.follow(conversation, 0.0, drafts=True)
    again = scene.core.follow(conversation, 0.0, drafts=True)
    assert (first.load, again.load) == ((conversation,), ())
    scene.connect()
    assert scene.of(Open) == [], "it is still being read"
    held = Conversation.restore(conversation, [genesis])
    scene.do(scene.core.loaded(conversation, held, (), 0.0))
    assert len(scene.of(Open)) == 1


def test_two_loads_of_one_conversation_give_one():
    scene = Scene()
    genesis = ME.genesis()
    conversation = genesis.conversation
    first, second = (Conversation.restore(conversation, [genesis]) for _ in range(2))
    scene.do(scene.core.loaded(conversation, first, (), 0.0))
    scene.do(scene.core.loaded(conversation, second, (), 0.0))
    assert scene.core.shelf[conversation] is first


def test_a_listed_conversation_is_followed_where_listings_were_requested():
    friend = Scene()
    friend.connect()
    conversation = friend.create()
    scene = Scene(Hello((1,), follow=True))
    scene.hub = friend.hub
    scene.connect()
    assert scene.loads == [conversation]
    assert len(scene.core.shelf[conversation].log) == 1


# --- epochs (ENT-14) ------------------------------------------------------------------


def restarted(scene: Scene) -> Scene:
    later = Scene()
    later.hub, later.disk, later.saved = scene.hub, scene.disk, scene.saved
    return later


def test_an_epoch_goes_on_while_the_store_is_open():
    scene = Scene()
    conversation = scene.create()
    epochs = {scene.write(conversation, text).header.epoch for text in "abc"}
    assert epochs == {ME.epoch}


def test_an_epoch_goes_on_after_a_restart_only_where_a_peer_confirmed_it():
    scene = Scene()
    scene.connect()
    conversation = scene.create()
    first = scene.write(conversation, "a").header.epoch
    scene.disconnect()
    alone = restarted(scene)
    alone.load(conversation)
    second = alone.write(conversation, "b").header.epoch
    assert second != first
    linked = restarted(scene)
    linked.do(linked.core.follow(conversation, 0.0, drafts=True))
    linked.connect()
    assert linked.states()[-1] is SyncState.SYNCHRONIZED
    linked.disconnect()
    assert linked.write(conversation, "c").header.epoch == second, "it was confirmed since"


def test_an_epoch_whose_lane_has_forked_is_left():
    scene = Scene()
    conversation = scene.create()
    entry = scene.write(conversation, "a")
    twin = Author(ME.key, ME.epoch).write(
        Conversation.restore(conversation, scene.disk[conversation][:1]),
        said("twin"), parents=(EntryId(conversation),), salt=bytes(16), time_ms=0,
    )  # fmt: skip
    assert twin.header.lane == entry.header.lane
    scene.core.shelf[conversation].admit(twin)
    assert scene.write(conversation, "b").header.epoch != ME.epoch


# --- refused commits ----------------------------------------------------------------


def test_a_conversation_the_disk_refused_is_read_and_opened_again_after_a_pause():
    scene = Scene()
    scene.connect()
    conversation = scene.create()
    scene.sent.clear()
    lost = scene.core.append(ME.write(conversation, said("lost"), parents=[scene.genesis]), 0.0)
    effects = scene.do(scene.core.disk_refused({conversation}, Fault.of(StoreError()), 0.0))
    assert lost.persist
    assert conversation not in scene.core.shelf
    assert [type(f.message) for f in effects.send] == [Close]
    fault = Fault.of(StoreError(), conversation)
    assert EntryFailed(conversation, None, fault, is_own=True) in effects.deliver
    assert effects.wake_at == pauses.REOPEN_FIRST_S
    scene.advance(pauses.REOPEN_FIRST_S)
    assert scene.loads[-1] == conversation
    assert len(scene.core.shelf[conversation].log) == 1, "the entries on disk"
    assert scene.states()[-1] is SyncState.SYNCHRONIZED


def test_a_refused_commit_ends_the_epoch():
    scene = Scene()
    scene.connect()
    conversation = scene.create()
    scene.disconnect()
    scene.do(scene.core.disk_refused({conversation}, Fault.of(StoreError()), 0.0))
    scene.load(conversation)
    assert scene.write(conversation, "a").header.epoch != ME.epoch


def test_a_conversation_that_can_not_be_read_is_tried_again_with_growing_pauses():
    scene = Scene()
    scene.connect()
    conversation = scene.create()
    scene.is_readable = False
    scene.do(scene.core.disk_refused({conversation}, Fault.of(StoreError()), 0.0))
    waits = []
    for _ in range(8):
        due = scene.core.handle_deadline(scene.now).wake_at
        loads = len(scene.loads)
        since = scene.now
        while len(scene.loads) == loads:  # the link's own deadlines come between
            assert due is not None
            scene.advance(due - scene.now)
            due = scene.core.handle_deadline(scene.now).wake_at
        waits.append(scene.now - since)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    scene.is_readable = True
    scene.advance(pauses.REOPEN_MAX_S)
    assert conversation in scene.core.shelf


# --- the link ------------------------------------------------------------------------------


def test_pauses_between_links_grow_and_start_over_after_a_long_one():
    scene = Scene()
    tries = [scene.core.reconnect_pause_s(0.5) for _ in range(8)]
    assert tries[:3] == pytest.approx([0.1, 0.2, 0.4])
    assert tries[-1] == pauses.RECONNECT_MAX_S
    assert scene.core.reconnect_pause_s(0.0) == pauses.RECONNECT_MAX_S / 2
    scene.connect()
    scene.now += pauses.RECONNECT_MAX_S + 1
    scene.disconnect()
    assert scene.core.reconnect_pause_s(0.5) == pytest.approx(0.1)


def test_the_end_of_a_link_is_delivered_last():
    scene = Scene()
    scene.connect()
    conversation = scene.create()
    scene.delivered.clear()
    scene.disconnect()
    assert scene.delivered == [StateChanged(conversation, SyncState.OFFLINE), LinkClosed(None)]
    assert not scene.core.link.is_ready


def test_a_hub_that_never_answered_is_reported_too():
    scene = Scene()
    fault = Fault("HUB_UNREACHABLE")
    scene.disconnect(fault)
    assert scene.delivered == [LinkClosed(fault)]


def test_an_unfollowed_conversation_is_left_and_not_opened_again():
    scene = Scene()
    scene.connect()
    conversation = scene.create()
    scene.do(scene.core.unfollow(conversation))
    assert isinstance(scene.sent[-1], Close)
    scene.disconnect()
    scene.sent.clear()
    scene.connect()
    assert scene.of(Open) == []


def test_entries_kept_beside_the_link_are_persisted_and_offered():
    scene = Scene()
    scene.connect()
    conversation = scene.create()
    held = scene.core.shelf[conversation]
    new = ME.write(conversation, Member(Grant(FRIEND.public, Role.WRITER)), parents=[scene.genesis])
    held.admit(new)
    effects = scene.do(scene.core.keep(held, (new,), 0.0))
    assert effects.persist == (new,)
    assert len(scene.hub.shelf[conversation].log) == 2
