"""A model host that strangers grant their conversations to still serves the others.

The cores of a hub and of a host. The hub has thousands of conversations of strangers, which
it lists first, since their ids are ground.
"""

import pytest

from replica import limits
from replica.core.listed import Leaves
from replica.core.selection import FollowPolicy, LeftOut
from replica.ids import ConversationId, EntryId, PublicKey
from replica.link.events import SyncState
from replica.link.messages import (
    Close,
    Credit,
    Entries,
    Hello,
    HostInfo,
    Listing,
    ListingItem,
    Open,
)
from replica.log.body import Grant, Member, Request, Role, Sampling
from replica.log.entry import Entry
from syncd.shelves.shelf import Known
from tests.support.core_scene import FRIEND, ME, Scene
from tests.support.writers import Writer, said

EVE = Writer(3)
POLICY = FollowPolicy(open_max=300, per_creator_max=64, unasked_max=100, idle_s=900.0)
HELLO = Hello((1,), follow=True, host=HostInfo(ME.public, "", ()))


def ground(scene: Scene, count: int, *, one_creator: bool = True) -> None:
    """Let strangers grant HOST in many conversations whose ids come first."""
    for number in range(count):
        creator = EVE.public if one_creator else PublicKey(number.to_bytes(32, "big"))
        conversation = ConversationId(number.to_bytes(32, "big"))
        known = Known(frozenset({ME.public, creator}), creator)
        scene.hub.shelf.apart.add(conversation, known)


class Owner:
    """The owner of a conversation in which ME is a host, writing at the hub."""

    def __init__(self, scene: Scene, writer: Writer = FRIEND) -> None:
        self.scene, self.writer = scene, writer
        self.last = self.genesis = writer.genesis()
        self.id = self.genesis.conversation
        self.push(self.genesis)
        grant = Member(Grant(ME.public, Role.HOST))
        self.push(self.writer.write(self.id, grant, parents=[self.last]))

    def push(self, entry: Entry) -> Entry:
        message = Entries(self.id, (entry,))
        effects, faults = self.scene.hub.begin_push(self.writer.public).whole(
            message, self.scene.now
        )
        assert faults == {entry.id: None}
        self.scene.perform(effects)
        return entry

    def ask(self) -> EntryId:
        self.last = self.push(self.writer.write(self.id, said("hi"), parents=[self.last]))
        body = Request(ME.public, Sampling())
        self.last = self.push(self.writer.write(self.id, body, parents=[self.last]))
        return self.last.id

    @property
    def is_served(self) -> bool:
        """Say whether the host has the conversation open, in sync and with its request."""
        channel = self.scene.core.link.channel(self.id)
        held = self.scene.core.shelf.get(self.id)
        is_whole = held is not None and self.last.id in held.log.entries
        return is_whole and channel is not None and channel.state is SyncState.SYNCHRONIZED


@pytest.fixture
def scene() -> Scene:
    return Scene(HELLO, POLICY)


def test_a_request_in_one_of_4200_granted_conversations_is_received(scene: Scene) -> None:
    ground(scene, 4_200, one_creator=False)
    owner = Owner(scene)
    owner.ask()
    scene.connect()
    assert owner.is_served


def test_a_request_that_comes_later_opens_its_conversation(scene: Scene) -> None:
    ground(scene, 4_200, one_creator=False)
    owner = Owner(scene)
    scene.connect()
    assert not owner.is_served
    owner.ask()
    assert owner.is_served
    owner.ask()
    assert sum(m.conversation == owner.id for m in scene.of(Open)) == 2  # asked with heads


def test_requests_of_strangers_do_not_displace_it_for_good(scene: Scene) -> None:
    """Their conversations ask too, and each of them is of another creator."""
    owners = [Owner(scene, Writer(1_000 + number)) for number in range(50)]
    scene.core.listed.selection._policy = FollowPolicy(open_max=20, unasked_max=0, idle_s=900.0)
    scene.connect()
    for owner in owners:
        owner.ask()
    honest = Owner(scene)
    honest.ask()
    for _ in range(10):
        scene.advance(20.0)
        if honest.is_served:
            return
    raise AssertionError("it gets no turn")


def test_only_the_owners_of_the_policy_are_served() -> None:
    scene = Scene(HELLO, FollowPolicy(creators=frozenset({FRIEND.public}), unasked_max=100))
    ground(scene, 50)
    known, unknown = Owner(scene), Owner(scene, EVE)
    scene.connect()
    for owner in (known, unknown):
        owner.ask()
    assert (known.is_served, unknown.is_served) == (True, False)
    assert scene.core.listed.selection.left_out()[LeftOut.CREATOR] == 51
    assert {m.conversation for m in scene.of(Open)} == {known.id}


def test_a_conversation_that_the_policy_names_is_served_whoever_created_it() -> None:
    scene = Scene(HELLO, FollowPolicy(creators=frozenset({FRIEND.public})))
    invited, other = Owner(scene, EVE), Owner(scene, EVE)
    named = FollowPolicy(frozenset({FRIEND.public}), frozenset({invited.id}))
    scene.core.listed.selection._policy = named
    scene.connect()
    for owner in (invited, other):
        owner.ask()
    assert (invited.is_served, other.is_served) == (True, False)
    assert scene.core.listed.selection.left_out()[LeftOut.CREATOR] == 1


def test_a_hub_that_lies_about_the_creator_gains_nothing() -> None:
    scene = Scene(HELLO, FollowPolicy(creators=frozenset({FRIEND.public})))
    foreign = Owner(scene, EVE)
    scene.connect()
    item = ListingItem(foreign.id, FRIEND.public, awaited=True)
    lie = Listing((item,))
    scene.do(scene.core.receive(lie, scene.now))
    assert scene.core.link.channel(foreign.id) is None
    assert foreign.id not in scene.core.shelf


def test_an_idle_conversation_leaves_memory_and_comes_back_with_the_next_request(
    scene: Scene,
) -> None:
    owner = Owner(scene)
    scene.connect()
    assert owner.is_served
    while scene.now < 900.0:
        assert owner.id in scene.core.shelf
        scene.advance(30.0)
    assert owner.id not in scene.core.shelf
    assert [m.conversation for m in scene.of(Close)] == [owner.id]
    owner.ask()
    assert owner.is_served


def test_a_request_that_crosses_the_close_is_listed_again(scene: Scene) -> None:
    owner = Owner(scene)
    scene.connect()
    scene.core.unfollow(owner.id)  # its Close is on the way
    owner.ask()
    assert not owner.is_served
    assert scene.link_id is not None
    scene.perform(scene.hub.receive(scene.link_id, Close(owner.id), 0.0))
    assert owner.is_served


def test_one_that_the_application_follows_is_never_closed(scene: Scene) -> None:
    owner = Owner(scene)
    scene.connect()
    scene.do(scene.core.follow(owner.id, scene.now, drafts=True))
    while scene.now < 930.0:
        scene.advance(30.0)
    assert owner.is_served


# --- the list --------------------------------------------------------------------------------


def test_a_long_list_is_sent_as_the_client_reads_it() -> None:
    scene = Scene()
    ground(scene, 20_500)
    waiting = Owner(scene)
    waiting.ask()
    link_id = scene.hub.connect(ME.public, 0.0)
    effects = scene.hub.receive(link_id, HELLO, 0.0)
    frames = [f for i, f in effects.send if i == link_id and isinstance(f.message, Listing)]
    assert sum(len(frame.data) for frame in frames) < limits.CREDIT_BYTES // 4
    first = frames[0].message
    assert isinstance(first, Listing)
    assert (first.items[0].conversation, first.items[0].awaited) == (waiting.id, True)
    total, granted = sum(len(f.data) for f in frames), 0
    listed = [item.conversation for f in frames for item in f.message.items]  # type: ignore[union-attr]
    while granted != total:
        granted = total
        effects = scene.hub.receive(link_id, Credit(granted + limits.CREDIT_BYTES), 0.0)
        for _, frame in effects.send:
            assert isinstance(frame.message, Listing)
            total += len(frame.data)
            listed += [item.conversation for item in frame.message.items]
    assert len(set(listed)) == len(listed) == 20_501


def test_a_list_waits_for_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CREDIT_BYTES", 1_000)
    monkeypatch.setattr(limits, "LISTING_ITEMS_MAX", 4)
    scene = Scene()
    ground(scene, 100)
    link_id = scene.hub.connect(ME.public, 0.0)
    sent = sum(
        len(f.message.items)
        for _, f in scene.hub.receive(link_id, HELLO, 0.0).send
        if isinstance(f.message, Listing)
    )
    assert 0 < sent <= 12
    assert scene.hub.connected.to_list[link_id]
    scene.hub.disconnect(link_id)
    assert not scene.hub.connected.to_list


def test_a_conversation_leaves_memory_once_it_is_neither_written_nor_used() -> None:
    scene = Scene()
    scene.connect()
    conversation = scene.create()
    listed = scene.core.listed
    assert listed.leaves(conversation, ()) is Leaves.NOT, "it is followed"
    scene.do(scene.core.unfollow(conversation))
    listed.pin(conversation, 1)
    assert listed.leaves(conversation, ()) is Leaves.NOT
    listed.pin(conversation, -1)
    assert listed.leaves(conversation, {conversation}) is Leaves.LATER
    assert listed.leaves(conversation, ()) is Leaves.NOW
