"""What a hub can make a client send, and keep: an answer for each Open, and no more."""

import pytest

from replica import limits
from replica.ids import ConversationId, Digest, EntryId
from replica.link.channel import Channel
from replica.link.events import SyncState
from replica.link.messages import Ids, Open, Opened
from replica.link.outgoing import Outgoing
from tests.support.client_scene import Scene
from tests.support.writers import said

OTHER = Digest(b"?" * 32)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_each_open_has_one_answer_and_only_one_that_may_follow_it(scene: Scene) -> None:
    """Else a hub makes a client send its heads again and again, and reads none of it."""
    channel = scene.channel()
    unasked = [
        Opened(scene.id, OTHER, False),
        Opened(scene.id, OTHER, False, ()),
        Opened(scene.id, scene.held.log.digest, True),
    ]
    for message in unasked:
        scene.receive(message)
    assert (channel.state, channel.is_open, scene.sent) == (SyncState.OPENING, False, [])
    scene.side.send_open(channel, scene.out, 0.0, with_heads=False)
    for _ in range(3):
        scene.receive(unasked[0])
    digest_alone, with_heads = scene.sent
    assert isinstance(with_heads, Open)
    assert with_heads.heads == scene.held.log.heads()
    ahead = [scene.ada.write(scene.id, said(t), parents=scene.line[-1:]).position for t in "ab"]
    for head in ahead:
        scene.receive(Opened(scene.id, OTHER, False, (head,)))
    assert channel.wanted == {ahead[0].id}
    assert scene.sent == [digest_alone, with_heads]


def test_each_open_is_followed_by_one_list_of_ids_and_its_answer(scene: Scene) -> None:
    """Each makes a client look at its whole log, and a list that is no answer send all its ids."""
    channel = scene.channel()
    scene.receive(Ids(scene.id, ()))
    assert not channel.is_due
    scene.side.send_open(channel, scene.out, 0.0, with_heads=True)
    scene.receive(Ids(scene.id, (), False, False))
    assert channel.ids_due is not None
    channel.ids_due = None
    channel.outgoing = Outgoing()
    scene.receive(Ids(scene.id, (), False, False))
    assert channel.ids_due is None
    scene.receive(Ids(scene.id, (scene.genesis.id,), False, True))
    assert channel.unacked == {entry.id for entry in scene.line[1:]}
    scene.receive(Ids(scene.id, (scene.line[-1].id,), False, True))
    assert channel.unacked == {entry.id for entry in scene.line[1:]}


def test_ids_that_a_hub_names_are_bounded_for_all_conversations_together(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDS_HELD_MAX", 5)
    channel, other = scene.channel(), Channel(ConversationId(bytes(32)))
    scene.side.channels[other.id] = other
    other.peer_ids, other.wanted = {EntryId(b"p" * 32)}, {EntryId(b"w" * 32)}
    for count, expected in ((3, 3), (4, 0)):
        scene.side.send_open(channel, scene.out, 0.0, with_heads=True)
        scene.receive(Ids(scene.id, tuple(EntryId(bytes([n] * 32)) for n in range(count)), True))
        assert len(channel.peer_ids) == expected
