"""One conversation between a client and a hub (spec/04-link §5, spec/05-reconcile)."""

from dataclasses import replace

import pytest

from replica import limits
from replica.conversation.conversation import Conversation
from replica.ids import Digest
from replica.link.client_side import BUSY_CHECKS_MAX
from replica.link.events import EntriesAcked, EntryFailed, StateChanged, SyncState
from replica.link.messages import Ack, Close, Entries, Fault, Ids, Message, Open, Opened
from replica.link.sent_opens import SentOpen
from replica.log.damage import Lost
from replica.log.entry import Entry
from replica.refusals import EntriesMissing, NotAllowed, QuotaExceeded, StoreFull
from replica.testing import of
from syncd.policy import Policy
from tests.support.scene import Scene
from tests.support.writers import Writer, said


@pytest.fixture
def scene() -> Scene:
    return Scene().begin()


# --- opening ---------------------------------------------------------------------------


def test_equal_digests_cost_no_heads_and_no_entries(scene: Scene):
    entries = [scene.genesis, *scene.chain(3)]
    scene.give(*entries[1:])
    acked = scene.held.log.heads()
    client = scene.reconnect(*entries)
    client.open(scene.id, acked=acked)
    assert of(Open, client.sent) == [Open(scene.id, scene.held.log.digest, None, True, 1)]
    assert of(Opened, client.received) == [Opened(scene.id, scene.held.log.digest, True, None, 1)]
    assert not of(Entries, [*client.sent, *client.received])
    assert scene.state() is SyncState.SYNCHRONIZED


def test_entries_both_lack_are_exchanged_in_one_round_trip(scene: Scene):
    known = scene.chain(2)
    scene.give(*known)
    other = Writer(2)
    scene.give(scene.grant(other.public))
    theirs = other.write(scene.id, said("from afar"), parents=[known[-1]])
    scene.hub.begin_push(other.public).whole(Entries(scene.id, (theirs,)), 0.0)
    ours = scene.chain(2)
    client = scene.reconnect(scene.genesis, *known, *ours)
    client.open(scene.id)
    assert len(of(Open, client.sent)) == 1
    assert [e for m in of(Entries, client.sent) for e in m.entries] == ours
    received = [e for m in of(Entries, client.received) for e in m.entries]
    assert theirs in received
    assert len(received) == 2  # the grant and the message, nothing we had
    assert client.shelf[scene.id].log.digest == scene.held.log.digest
    assert scene.state() is SyncState.SYNCHRONIZED


def test_a_suffix_is_sent_once_even_if_the_first_open_showed_no_heads(scene: Scene):
    entries = [scene.genesis, *scene.chain(5)]
    stale = [scene.genesis.position]
    client = scene.reconnect(*entries)
    acked = Conversation.restore(scene.id, entries).log.heads()
    client.open(scene.id, acked=acked)  # the hub has lost acked entries since
    assert [m.heads is None for m in of(Open, client.sent)] == [True, False]
    assert [e for m in of(Entries, client.sent) for e in m.entries] == entries[1:]
    assert stale
    assert scene.held.log.digest == client.shelf[scene.id].log.digest


def test_an_unknown_conversation_is_seeded_from_the_genesis():
    scene = Scene()
    entries = [scene.genesis, *scene.chain(3)]
    scene.client.append(*entries)
    scene.client.open(scene.id)
    assert [f.reason for f in of(Fault, scene.client.received)] == ["CONVERSATION_NOT_FOUND"]
    assert list(scene.held.log.entries) == [e.id for e in entries]
    assert scene.state() is SyncState.SYNCHRONIZED


def test_a_lost_seed_is_sent_again():
    scene = Scene()
    scene.client.append(scene.genesis, *scene.chain(3))
    scene.network.loses = lambda message: isinstance(message, Entries)
    scene.client.open(scene.id)
    assert scene.id not in scene.hub.shelf
    scene.network.loses = lambda _: False
    for _ in range(3):
        scene.network.advance(limits.RESYNC_S)
    assert scene.held.log.digest == scene.client.shelf[scene.id].log.digest
    assert scene.state() is SyncState.SYNCHRONIZED


def test_entries_written_during_the_first_open_are_sent_at_once(scene: Scene):
    client = scene.reconnect(scene.genesis)
    opened: list[Opened] = []
    scene.network.loses = lambda m: isinstance(m, Opened) and not opened.append(m)
    client.open(scene.id)
    scene.network.loses = lambda _: False
    (entry,) = scene.chain(1)
    client.append(entry)
    assert entry.id not in scene.held.log.entries
    client.receive(opened[0])  # equal to our log at the time of the Open
    assert entry.id in scene.held.log.entries
    assert scene.state() is SyncState.SYNCHRONIZED


# --- admission of clients --------------------------------------------------------------------


def test_a_denied_client_opens_again_and_succeeds_once_granted(scene: Scene):
    other = Writer(2)
    peer = scene.network.connect(other.public)
    peer.open(scene.id)
    assert scene.state(peer) is SyncState.DENIED
    assert len(of(EntryFailed, peer.events)) == 1
    assert not of(EntryFailed, peer.events)[0].is_own
    scene.client.append(scene.grant(other.public))
    scene.network.advance(limits.DENIED_RECHECK_S / 2)
    scene.network.advance(limits.DENIED_RECHECK_S / 2)
    assert scene.state(peer) is SyncState.SYNCHRONIZED


# --- appending -----------------------------------------------------------------------------


def test_a_non_member_appends_nothing(scene: Scene):
    stranger = Writer(9)
    entry = stranger.write(scene.id, said("hello"), parents=[scene.genesis])
    with pytest.raises(NotAllowed):
        scene.client.link.append(entry, 0.0)
    assert not scene.client.shelf[scene.id].log.pending


# --- comparisons in mid-traffic -----------------------------------------------------------


def inconclusive(scene: Scene) -> list[Open]:
    """Answer a comparison with another digest before an entry's ack; return the Opens after it."""
    scene.network.loses = lambda message: isinstance(message, (Ack, Opened))
    asked = scene.client.link.channels[scene.id]
    asked.opens.add(SentOpen(99, Digest(bytes(32)), with_heads=False, at=0.0))
    (entry,) = scene.chain(1)
    scene.client.append(entry)
    before = len(of(Open, scene.client.sent))
    for late in (Opened(scene.id, Digest(bytes(32)), False, None, 99), Ack(scene.id, (entry.id,))):
        scene.client.receive(late)
    scene.network.advance(limits.RESYNC_S)
    return of(Open, scene.client.sent)[before:]


def test_a_hub_shows_no_heads_to_a_digest_on_a_live_conversation(scene: Scene):
    scene.client.send(Open(scene.id, Digest(bytes(32))))
    assert of(Opened, scene.client.received)[-1].heads is None


def test_an_inconclusive_comparison_is_repeated_without_heads(scene: Scene):
    (repeated,) = inconclusive(scene)
    assert repeated.heads is None
    assert scene.client.link.channels[scene.id].state is SyncState.SYNCHRONIZED


def test_repeated_inconclusive_comparisons_send_heads_at_last(scene: Scene):
    firsts = [inconclusive(scene)[0] for _ in range(BUSY_CHECKS_MAX + 1)]
    assert [one.heads is None for one in firsts] == [True] * BUSY_CHECKS_MAX + [False]


def test_an_unexplained_difference_is_reported_and_repaired(scene: Scene):
    lost = scene.chain(1)
    scene.hub.shelf[scene.id].admit(lost[0])  # the client is never notified
    scene.network.advance(limits.HEARTBEAT_S)
    states = [e.state for e in scene.client.events if isinstance(e, StateChanged)]
    assert SyncState.DESYNCHRONIZED in states
    assert states[-1] is SyncState.SYNCHRONIZED
    assert lost[0].id in scene.client.shelf[scene.id].log.entries


# --- acks ---------------------------------------------------------------------------------


def test_an_ack_follows_admission_and_names_the_lanes_newest(scene: Scene):
    line = scene.chain(3)
    effects = scene.hub.receive(scene.client.link_id, Entries(scene.id, tuple(line)), 0.0)
    assert effects.persist == tuple(line)
    link_id, frame = effects.send[0]
    assert (link_id, frame.message) == (scene.client.link_id, Ack(scene.id, (line[2].id,)))


def test_a_pending_entry_is_not_acked(scene: Scene):
    line = scene.chain(2)
    effects = scene.hub.receive(scene.client.link_id, Entries(scene.id, (line[1],)), 0.0)
    assert effects.persist == ()
    assert not [f for _, f in effects.send if isinstance(f.message, Ack)]


def test_an_ack_covers_the_entry_and_its_lane_ancestors(scene: Scene):
    scene.network.loses = lambda message: isinstance(message, Ack)
    line = scene.chain(3)
    scene.client.append(*line)
    channel = scene.client.link.channels[scene.id]
    assert channel.unacked == {e.id for e in line}
    head = line[2].position
    effects = scene.client.link.receive(Ack(scene.id, (head.id,)), 0.0)
    assert EntriesAcked(scene.id, (head,)) in effects.deliver
    assert not channel.unacked


def test_a_guess_about_a_longer_lane_is_never_an_ack(scene: Scene):
    """The hub is ahead on our lane with another history, and may lack our entries."""
    common = scene.chain(1)
    twin = scene.writer.restored()
    theirs = scene.chain(4)
    ours = [twin.write(scene.id, said("other"), parents=[common[-1]])]
    scene.give(*common, *theirs)
    client = scene.reconnect(scene.genesis, *common, *ours)
    scene.network.loses = lambda message: isinstance(message, (Entries, Ids))
    client.open(scene.id)
    acked = {p.id for e in of(EntriesAcked, client.events) for p in e.positions}
    assert ours[0].id not in acked
    assert ours[0].id in client.link.channels[scene.id].unacked


def test_the_peers_own_entry_acks_its_predecessor_in_the_lane(scene: Scene):
    line = scene.chain(3)
    scene.give(*line)
    client = scene.reconnect(scene.genesis, *line[:2])
    scene.network.loses = lambda message: isinstance(message, Opened)
    client.open(scene.id)
    assert client.link.channels[scene.id].unacked <= {scene.genesis.id}


def test_a_refused_entry_is_neither_acked_nor_sent_again_on_this_link():
    scene = Scene(Policy(entries_max=2)).begin()
    line = scene.chain(3)
    scene.client.append(*line)
    channel = scene.client.link.channels[scene.id]
    refused = {e.id for e in line[1:]}
    assert {one: fault.reason for one, fault in channel.refused.items()} == dict.fromkeys(
        refused, QuotaExceeded.reason
    )
    for _ in range(12):
        scene.network.advance(limits.RESYNC_S)
    sent = [e.id for frame in of(Entries, scene.client.sent) for e in frame.entries]
    assert [sent.count(i) for i in refused] == [1, 1]
    acked = [p.id for event in of(EntriesAcked, scene.client.events) for p in event.positions]
    assert refused.isdisjoint(acked)
    assert scene.state() is SyncState.SYNCHRONIZED


def test_a_refused_entry_that_the_hub_misses_for_another_is_not_acked():
    scene = Scene(Policy(entries_max=2)).begin()
    line = scene.chain(2)
    scene.client.append(*line)
    link, refused = scene.client.link, line[1].id
    channel = link.channels[scene.id]
    assert (refused in channel.refused, refused in channel.unacked) == (True, False)
    link.receive(Fault.of(EntriesMissing(missing=[refused]), scene.id), 0.0)
    assert (refused in channel.refused, refused in channel.unacked) == (False, True)
    link.receive(Fault.of(QuotaExceeded(), scene.id, refused), 0.0)
    assert (refused in channel.refused, refused in channel.unacked) == (True, False)


def test_a_replica_whose_missing_entries_are_refused_is_synchronized_at_once():
    scene = Scene(Policy(entries_max=2)).begin()
    line = scene.chain(3)
    scene.client.append(*line)
    client = scene.reconnect(scene.genesis, *line)
    client.open(scene.id)
    assert client.link.channels[scene.id].refused.keys() == {e.id for e in line[1:]}
    assert scene.state() is SyncState.SYNCHRONIZED


def test_a_conversation_refused_for_good_is_opened_once_a_minute(scene: Scene):
    scene.hub.delete(scene.id)
    scene.client.append(*scene.chain(1))
    scene.network.advance(limits.RESYNC_S)
    assert scene.state() is SyncState.DENIED
    before = len(of(Open, scene.client.sent))
    for _ in range(20):
        scene.network.advance(limits.DENIED_RECHECK_S / 5)
    assert len(of(Open, scene.client.sent)) - before <= 4


# --- bodies ----------------------------------------------------------------------------------


def without_body(entry: Entry) -> Entry:
    return replace(entry, body=None)


def test_a_body_the_hub_lost_is_sent_by_a_replica_and_passed_on(scene: Scene):
    (entry,) = scene.chain(1)
    held = [scene.genesis, entry]
    hub = scene.hub
    hub.disk_refused({scene.id}, Fault.of(StoreFull()))
    hub.load(scene.id, [scene.genesis, without_body(entry)])
    other = scene.network.connect(scene.writer.public)
    other.open(scene.id)
    assert other.shelf[scene.id].log.entries[entry.id].body is None
    scene.reconnect(*held).open(scene.id)
    assert hub.shelf[scene.id].log.entries[entry.id] == entry
    assert other.shelf[scene.id].log.entries[entry.id] == entry


def test_a_body_a_replica_lost_is_sent_by_the_hub(scene: Scene):
    (entry,) = scene.chain(1)
    scene.client.append(entry)
    peer = scene.reconnect(scene.genesis, without_body(entry))
    peer.open(scene.id)
    assert peer.shelf[scene.id].log.entries[entry.id] == entry
    assert peer.stored == [entry]


# --- lost messages -----------------------------------------------------------------------------


def test_a_lost_entry_is_sent_again_after_the_recheck(scene: Scene):
    (entry,) = scene.chain(1)
    scene.network.loses = lambda message: isinstance(message, Entries)
    scene.client.append(entry)
    scene.network.loses = lambda _: False
    assert entry.id not in scene.held.log.entries
    scene.network.advance(limits.RESYNC_S)
    assert entry.id in scene.held.log.entries
    assert scene.state() is SyncState.SYNCHRONIZED


def test_entries_sent_again_for_late_ids_are_acked_though_the_ack_was_lost(scene: Scene):
    scene.client.append(*scene.chain(2))
    client = scene.client
    client.send(Open(scene.id, scene.held.log.digest, None))
    scene.network.advance(limits.RESYNC_S)
    assert scene.state() is SyncState.SYNCHRONIZED
    scene.network.loses = lambda message: isinstance(message, Ack)
    # A list that lost a chunk: the replica treats its whole log as missing at the hub.
    client.receive(Ids(scene.id, (), answer=True))
    scene.network.loses = lambda message: False
    channel = client.link.channels[scene.id]
    assert channel.unacked
    scene.network.advance(limits.RESYNC_S)
    assert not channel.unacked
    assert scene.state() is SyncState.SYNCHRONIZED


def test_a_steady_writer_still_checks_again(scene: Scene):
    line = scene.chain(4)
    scene.network.loses = lambda message: isinstance(message, (Entries, Ack, Fault))
    for entry in line:
        scene.client.append(entry)
        scene.network.advance(limits.RESYNC_S / 3)
    scene.network.loses = lambda _: False
    scene.network.advance(limits.RESYNC_S / 3)
    scene.network.advance(limits.RESYNC_S)
    assert scene.held.log.lane_length(line[0].header.lane) == 4


def test_entries_acked_in_time_are_not_compared_while_newer_ones_are_in_flight(scene: Scene):
    first, second = scene.chain(2)
    opens: list[Message] = []

    def observe(message: Message) -> bool:
        opens.extend([message] if isinstance(message, Open) else [])
        return isinstance(message, Ack)

    scene.network.loses = observe
    scene.client.append(first)
    scene.network.advance(limits.RESYNC_S * 0.6)
    scene.client.append(second)
    scene.client.receive(Ack(scene.id, (first.id,)))
    scene.network.advance(limits.RESYNC_S * 0.5)
    assert opens == []  # the second one was sent 2.5 s ago
    scene.network.advance(limits.RESYNC_S)
    assert len(opens) == 1
    assert scene.state() is SyncState.SYNCHRONIZED


def test_an_entry_a_reader_missed_is_found_at_the_next_heartbeat(scene: Scene):
    reader_key = Writer(3)
    scene.client.append(scene.grant(reader_key.public))
    reader = scene.network.connect(reader_key.public)
    reader.open(scene.id)
    scene.network.advance(limits.HEARTBEAT_S)
    (entry,) = scene.chain(1)
    scene.hub.begin_push(scene.writer.public).whole(
        Entries(scene.id, (entry,)), 0.0
    )  # and nothing is sent
    scene.network.advance(limits.HEARTBEAT_S)
    assert entry.id in reader.shelf[scene.id].log.entries
    states = [e.state for e in of(StateChanged, reader.events)]
    assert [s.value for s in states[-3:]] == ["desynchronized", "reconciling", "synchronized"]


# --- closing and damage --------------------------------------------------------------------


@pytest.mark.parametrize("with_fault", [True, False])
def test_a_close_is_delivered_with_its_fault_if_it_has_one(scene: Scene, with_fault: bool):
    fault = Fault.of(NotAllowed(), scene.id) if with_fault else None
    scene.client.events.clear()
    scene.client.receive(Close(scene.id, fault))
    assert of(StateChanged, scene.client.events) == [StateChanged(scene.id, SyncState.OFFLINE)]
    failed = [EntryFailed(scene.id, None, fault)] if fault else []
    assert of(EntryFailed, scene.client.events) == failed
    scene.client.receive(Close(scene.id, fault))
    assert len(of(StateChanged, scene.client.events)) == 1, "it is closed once"


def test_a_blocked_conversation_offers_nothing(scene: Scene):
    (grant, *_), link = [scene.grant(Writer(2).public)], scene.client.link
    entry = scene.say()
    held = Conversation.restore(
        scene.id, [scene.genesis, entry], Lost(*[frozenset([grant.id])] * 2)
    )
    assert held.is_blocked
    scene.client.shelf.add(held)
    channel = link.channels[scene.id]
    assert channel.is_open
    link.offer(scene.id, [entry.id], 0.0)
    assert not channel.outgoing
    assert not channel.unacked
