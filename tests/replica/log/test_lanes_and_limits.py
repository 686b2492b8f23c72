"""Lanes with two histories, quotas, and unknown kinds on one link (spec/05-reconcile)."""

import pytest

from replica import limits
from replica.conversation.author import Author
from replica.errors import EntryRefused
from replica.link.events import EntryFailed, SyncState
from replica.link.messages import Ack, Entries, Fault, Ids
from replica.log.entry import Entry
from replica.refusals import CriticalKindUnknown
from replica.testing import Peer, of
from syncd.policy import Policy
from tests.support.scene import Scene
from tests.support.writers import Writer, said


@pytest.fixture
def scene() -> Scene:
    return Scene().begin()


# --- lanes that diverge ---------------------------------------------------------------------------


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


def test_the_replica_learns_where_its_lane_diverged():
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
    other = Writer(66)
    peer = scene.network.connect(other.public)
    hub_link = scene.hub.links[peer.link_id]
    hub_link.exchange.channels.update(scene.hub.links[scene.client.link_id].channels)
    peer.send(Ids(scene.id, ()))
    assert not of(Ids, peer.received)


# --- quotas and unknown kinds ---------------------------------------------------------------------


def test_a_full_conversation_refuses_new_entries_but_not_known_ones():
    scene = Scene(Policy(entries_max=2)).begin()
    line = scene.chain(2)
    scene.client.append(line[0])
    scene.client.append(line[1])
    failed = [e for e in of(EntryFailed, scene.client.events) if e.fault.reason == "QUOTA_EXCEEDED"]
    assert [e.entry for e in failed] == [line[1].id]
    before = len(of(Ack, scene.client.received))
    scene.client.send(Entries(scene.id, (line[0],)))
    assert len(of(Ack, scene.client.received)) == before + 1


def test_conversations_per_link_are_capped(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "CONVERSATIONS_PER_LINK_MAX", 1)
    second = Writer(1, epoch=2).genesis()
    scene.client.send(Entries(second.conversation, (second,)))
    scene.client.open(second.conversation)
    assert of(Fault, scene.client.received)[-1].reason == "QUOTA_EXCEEDED"


def test_unknown_kinds_are_carried_by_hub_and_replica_alike(scene: Scene):
    reader_key = Writer(3)
    scene.client.append(scene.grant(reader_key.public))
    reader = scene.network.connect(reader_key.public)
    reader.open(scene.id)
    strange = scene.writer.write(scene.id, said("?"), parents=[scene.genesis], kind=99)
    scene.client.append(strange)
    assert reader.shelf[scene.id].log.entries[strange.id] == strange


def test_an_unknown_critical_kind_makes_an_author_stop(scene: Scene):
    strange = scene.writer.write(
        scene.id, said("?"), parents=[scene.genesis], kind=99, critical=True
    )
    scene.client.append(strange)
    assert strange.id in scene.held.log.entries
    with pytest.raises(CriticalKindUnknown):
        Author(scene.writer.key, 77).write(
            scene.client.shelf[scene.id],
            said("no"),
            parents=(strange.id,),
            salt=bytes(16),
            time_ms=0,
        )


def test_appending_an_entry_that_breaks_a_rule_raises(scene: Scene):
    good = scene.chain(1)[0]
    bad = Entry(good.header_bytes, bytes(64), good.body, good.id, good.header)
    with pytest.raises(EntryRefused):
        scene.client.append(bad)
