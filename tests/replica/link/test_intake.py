"""Admission of entries from a peer: strangers, pending and refused entries (spec/04-link §5)."""

from dataclasses import replace

import pytest

from replica import limits
from replica.ids import ConversationId
from replica.link.events import SyncState
from replica.link.messages import Entries, Fault, Open
from replica.log.body import Grant, Member, Role
from replica.log.entry import Entry, entry_id
from replica.refusals import SignatureInvalid
from replica.testing import Network, of, shelf_of
from syncd.hub import Hub
from syncd.policy import Policy
from tests.support.scene import HUB_KEY, Scene
from tests.support.writers import Writer, said


@pytest.fixture
def scene() -> Scene:
    return Scene().begin()


# --- strangers -------------------------------------------------------------------------


def test_unknown_and_forbidden_get_the_same_answer(scene: Scene):
    stranger = scene.network.connect(Writer(66).public)
    stranger.open(scene.id)
    stranger.open(ConversationId(b"?" * 32))
    first, second = of(Fault, stranger.received)
    assert (first.reason, first.detail, first.next_step, first.entry, first.missing) == (
        second.reason,
        second.detail,
        second.next_step,
        second.entry,
        second.missing,
    )
    assert scene.state(stranger) is SyncState.DENIED


@pytest.mark.parametrize("kind", ["new", "known", "pending", "forged", "membership", "none"])
def test_a_stranger_gets_the_same_answer_whether_the_conversation_is_here_or_not(
    scene: Scene, kind: str
):
    stranger = Writer(66)
    line = scene.chain(3)
    scene.give(line[0])
    sent: dict[str, tuple[Entry, ...]] = {
        "new": (line[1],),
        "known": (line[0],),
        "pending": (line[2],),
        "forged": (stranger.write(scene.id, said("let me in"), parents=[line[0]]),),
        "membership": (
            stranger.write(
                scene.id, Member(Grant(stranger.public, Role.OWNER)), parents=[scene.genesis]
            ),
        ),
        "none": (),
    }
    answers = []
    for hub in (scene.hub, Hub(HUB_KEY, Policy())):
        network = Network(hub)
        peer = network.connect(stranger.public)
        before = len(peer.received)
        peer.send(Entries(scene.id, sent[kind]))
        answers.append(peer.received[before:])
    assert answers[0] == answers[1]


def test_a_stranger_that_sends_its_grant_is_admitted():
    scene = Scene()
    other = Writer(2)
    entries = (scene.genesis, scene.grant(other.public))
    peer = scene.network.connect(other.public, shelf=shelf_of(*entries))
    peer.open(scene.id)
    assert scene.state(peer) is SyncState.SYNCHRONIZED
    assert set(scene.held.log.entries) == {e.id for e in entries}


def test_a_stranger_can_not_bring_a_conversation_it_is_no_member_of():
    scene = Scene()
    peer = scene.network.connect(Writer(66).public, shelf=shelf_of(scene.genesis))
    peer.open(scene.id)
    for _ in range(4):
        scene.network.advance(limits.RESYNC_S)
    assert scene.id not in scene.hub.shelf
    assert not scene.network.stored
    assert scene.state(peer) is SyncState.DENIED


def test_only_keys_the_policy_names_may_create():
    scene = Scene(Policy(creators=frozenset()))
    scene.begin()
    assert "CREATE_FORBIDDEN" in [f.reason for f in of(Fault, scene.client.received)]
    assert scene.id not in scene.hub.shelf


# --- refused entries -------------------------------------------------------------------


def test_a_refused_entry_is_reported_once_and_not_sent_again(scene: Scene):
    good = scene.chain(1)[0]
    bad = Entry(good.header_bytes, bytes(64), good.body, good.id, good.header)
    scene.client.send(Entries(scene.id, (bad,)))
    (fault,) = of(Fault, scene.client.received)[-1:]
    assert (fault.reason, fault.entry) == (SignatureInvalid.reason, good.id)
    assert good.id not in scene.held.log.entries


def test_entries_the_decoder_set_aside_are_refused_by_name(scene: Scene):
    good, next_one = scene.chain(2)
    broken = replace(next_one, header_bytes=next_one.header_bytes + b"\x00")
    scene.client.send(Entries(scene.id, (good, broken)))
    fault = of(Fault, scene.client.received)[-1]
    assert (fault.reason, fault.entry) == ("WIRE_MALFORMED", entry_id(broken.header_bytes))
    assert good.id in scene.held.log.entries


# --- pending entries -------------------------------------------------------------------


def test_a_gap_is_named_once_and_filled(scene: Scene):
    line = scene.chain(6)
    lost = {line[0].id}
    scene.network.loses = lambda m: isinstance(m, Entries) and m.entries[0].id in lost
    scene.client.append(line[0])
    scene.network.loses = lambda _: False
    scene.client.send(Entries(scene.id, tuple(line[2:])))
    missing = [f.missing for f in of(Fault, scene.client.received)[-1:]]
    assert missing == [(line[1].id,)]
    scene.client.append(*line[1:])
    assert scene.held.log.lane_length(line[0].header.lane) == 6
    assert not scene.client.link.channels[scene.id].unacked


def test_pending_is_capped_and_the_link_goes_on(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "PENDING_LINK_BYTES_MAX", 5 * limits.PENDING_ENTRY_BYTES_MIN)
    line = scene.chain(10)
    scene.client.send(Entries(scene.id, tuple(line[1:])))
    assert "PENDING_FULL" in [f.reason for f in of(Fault, scene.client.received)]
    assert len(scene.held.log.pending) <= 5
    scene.client.append(*line)
    assert scene.held.log.lane_length(line[0].header.lane) == 10


def test_each_conversation_that_lost_pending_entries_is_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "PENDING_LINK_BYTES_MAX", 5 * limits.PENDING_ENTRY_BYTES_MIN)
    other = Writer(1, epoch=2)
    genesis = other.genesis()
    other_id = ConversationId(genesis.id)
    first, second = (other.write(other_id, said(text), parents=[genesis]) for text in "ab")
    scene.client.send(Entries(other_id, (genesis, second)))
    scene.client.send(Entries(scene.id, tuple(scene.chain(10)[1:])))
    told = {f.conversation for f in of(Fault, scene.client.received) if f.reason == "PENDING_FULL"}
    assert told == {other_id, scene.id}
    scene.client.send(Entries(other_id, (first, second)))
    held = scene.hub.shelf.get(other_id)
    assert held is not None
    assert second.id in held.log.entries


def test_a_link_is_not_charged_for_entries_another_link_released(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    line = scene.chain(20)
    monkeypatch.setattr(limits, "PENDING_LINK_BYTES_MAX", 4 * limits.PENDING_ENTRY_BYTES_MIN)
    for number in range(0, 20, 2):
        scene.client.send(Entries(scene.id, (line[number + 1],)))
        scene.give(line[number])
    assert "PENDING_FULL" not in [f.reason for f in of(Fault, scene.client.received)]
    assert scene.held.log.lane_length(line[0].header.lane) == 20


def test_pending_entries_are_dropped_with_their_link(scene: Scene):
    line = scene.chain(2)
    scene.client.send(Entries(scene.id, (line[1],)))
    assert scene.held.log.pending
    scene.network.disconnect(scene.client)
    assert not scene.held.log.pending


def test_a_pending_entry_is_acked_to_its_author_once_admitted(scene: Scene):
    other = Writer(2)
    member = scene.grant(other.public)
    line = scene.chain(1)
    answer = other.write(scene.id, said("to that"), parents=[line[0]])
    scene.client.append(member)
    peer = scene.network.connect(other.public, shelf=shelf_of(scene.genesis, member, *line, answer))
    scene.network.loses = lambda m: isinstance(m, Entries) and m.entries[0] == line[0]
    peer.send(Open(scene.id, scene.held.log.digest))
    peer.open(scene.id)
    scene.network.loses = lambda _: False
    scene.give(*line)
    scene.network.advance(limits.RESYNC_S)
    assert not peer.link.channels[scene.id].unacked
    assert answer.id in scene.held.log.entries


def test_an_entry_that_comes_in_the_same_frame_is_not_named_missing(scene: Scene):
    line = scene.chain(3)
    scene.client.send(Entries(scene.id, tuple(reversed(line))))
    assert all(scene.at_hub(entry) for entry in line)
    assert "ENTRIES_MISSING" not in scene.client.faults


def test_of_a_conversation_that_a_stranger_may_not_bring_nothing_is_charged():
    scene = Scene()
    stranger = scene.network.connect(Writer(66).public)
    first, second = scene.grant(Writer(2).public), scene.grant(Writer(3).public)
    stranger.send(Entries(scene.id, (scene.genesis, second)))
    assert first.id != second.id
    assert scene.id not in scene.hub.shelf
    assert scene.hub.links[stranger.link_id].intake.pending_bytes == 0
    assert not scene.hub.links[stranger.link_id].intake.pending


def test_a_conversation_that_came_to_nothing_releases_no_pending_entry_of_another(scene: Scene):
    _, pending = scene.chain(2)
    scene.client.send(Entries(scene.id, (pending,)))
    foreign = Writer(66).genesis()
    scene.client.send(Entries(foreign.conversation, (foreign,)))
    assert foreign.conversation not in scene.hub.shelf
    intake = scene.hub.links[scene.client.link_id].intake
    assert intake.pending.keys() == scene.held.log.pending.keys() == {pending.id}
    assert intake.pending_bytes == max(pending.size_bytes, limits.PENDING_ENTRY_BYTES_MIN)


def test_a_pending_entry_is_charged_once_also_if_the_conversation_is_read_again(scene: Scene):
    _, pending = scene.chain(2)
    scene.client.send(Entries(scene.id, (pending,)))
    scene.hub.load(scene.id, [scene.genesis])
    scene.client.send(Entries(scene.id, (pending,)))
    intake = scene.hub.links[scene.client.link_id].intake
    assert scene.held.log.pending.keys() == {pending.id}
    assert intake.pending_bytes == limits.PENDING_ENTRY_BYTES_MIN > pending.size_bytes
