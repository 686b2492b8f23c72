"""Lanes with two histories, exchanged over a link (spec/05-reconcile §2)."""

import pytest

from replica import limits
from replica.link.events import EntryFailed, SyncState
from replica.link.messages import Ids
from replica.log.entry import Entry
from replica.testing import Peer, of
from tests.support.scene import Scene
from tests.support.writers import Writer, said


@pytest.fixture
def scene() -> Scene:
    return Scene().begin()


def two_histories(scene: Scene, ours: int, theirs: int) -> tuple[Peer, list[Entry]]:
    """Let the hub hold one history of a lane and a restored backup write another."""
    common = scene.chain(2)
    twin = scene.writer.restored()
    one = scene.chain(theirs)
    last, two = common[-1], []
    for number in range(ours):
        last = twin.write(scene.id, said(f"restored {number}"), parents=[last])
        two.append(last)
    scene.give(*common, *one)
    client = scene.reconnect(scene.genesis, *common, *two)
    return client, [*common, *one, *two]


@pytest.mark.parametrize(("ours", "theirs"), [(1, 1), (3, 1), (1, 3), (4, 4)])
def test_diverged_lanes_are_named_and_all_ids_exchanged(ours: int, theirs: int):
    scene = Scene().begin()
    client, entries = two_histories(scene, ours, theirs)
    client.open(scene.id)
    assert of(Ids, [*client.sent, *client.received])
    expected = {scene.genesis.id, *(e.id for e in entries)}
    assert set(scene.held.log.entries) == set(client.shelf[scene.id].log.entries) == expected
    assert scene.held.log.digest == client.shelf[scene.id].log.digest
    assert scene.state() is SyncState.SYNCHRONIZED
    assert scene.held.log.equivocations()


def test_the_client_is_told_where_its_lane_diverged():
    scene = Scene().begin()
    client, entries = two_histories(scene, 2, 2)
    client.open(scene.id)
    (failed,) = [e for e in of(EntryFailed, client.events) if e.fault.reason == "LANES_DIVERGED"]
    assert failed.fault.retryable
    assert failed.entry == entries[-1].id


def test_ids_come_in_chunks_and_count_only_when_complete(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "IDS_PER_FRAME", 2)
    scene = Scene().begin()
    client, entries = two_histories(scene, 4, 4)
    client.open(scene.id)
    chunks = of(Ids, client.received)
    assert [c.more for c in chunks][-1] is False
    assert max(len(c.ids) for c in chunks) == 2
    assert scene.held.log.digest == client.shelf[scene.id].log.digest
    assert len(scene.held.log) == len(entries) + 1


def test_someone_who_is_no_member_any_more_gets_no_ids(scene: Scene):
    stranger = Writer(66)
    peer = scene.network.connect(stranger.public)
    hub_link = scene.hub.links[peer.link_id]
    hub_link.exchange.channels.update(scene.hub.links[scene.client.link_id].channels)
    peer.send(Ids(scene.id, ()))
    assert not of(Ids, peer.received)
