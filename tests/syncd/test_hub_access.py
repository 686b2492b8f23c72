"""Strangers at a hub: the answers they get, and the limits on entries and claims (spec/04-link)."""

from dataclasses import replace

import pytest

from replica import limits
from replica.conversation import Draft, start_digest
from replica.ids import ConversationId, Digest, EntryId
from replica.link.codec import encode_frame
from replica.link.link import Phase
from replica.link.messages import (
    Ack,
    Close,
    Entries,
    Fault,
    Hello,
    HostInfo,
    Ids,
    Open,
    Ping,
    ProfileInfo,
    Welcome,
)
from replica.log.body import Grant, Member, Revocation, Role
from replica.log.entry import Entry
from replica.refusals import EntriesMissing
from replica.testing import of, shelf_of
from syncd.hub import Hub
from syncd.policy import Policy
from tests.support.scene import HUB_KEY, Scene
from tests.support.writers import Writer, said

EVE = Writer(66)
HELLO = Hello((1,))


@pytest.fixture
def scene() -> Scene:
    return Scene().begin()


def reasons(outcomes: dict[EntryId, Fault | None]) -> list[str]:
    return [fault.reason if fault is not None else "durable" for fault in outcomes.values()]


def push(hub: Hub, writer: Writer, conversation: ConversationId, *entries: Entry) -> list[str]:
    return reasons(hub.begin_push(writer.public).whole(Entries(conversation, entries), 0.0)[1])


# --- strangers ----------------------------------------------------------------------


def test_a_push_shows_a_stranger_nothing(scene: Scene):
    (entry,) = scene.chain(1)
    scene.give(entry)
    forged = replace(entry, signature=bytes(64), body=None)
    empty = Hub(HUB_KEY, Policy())
    for entries in ((scene.genesis, entry), (entry,), (forged,)):
        present = scene.hub.begin_push(EVE.public).whole(Entries(scene.id, entries), 0.0)
        absent = empty.begin_push(EVE.public).whole(Entries(scene.id, entries), 0.0)
        assert present == absent
        assert set(reasons(present[1])) == {"CONVERSATION_NOT_FOUND"}


def test_ids_without_an_open_and_drafts_without_a_seal_get_no_answer(scene: Scene):
    """A stranger's are answered as little as a member's (LINK-9, LINK-17)."""
    (entry,) = scene.chain(1)
    scene.give(entry)
    nowhere = ConversationId(bytes([9] * 32))
    for key in (EVE.public, scene.writer.public):
        peer = scene.network.connect(key)
        peer.received.clear()
        for conversation in (scene.id, nowhere):
            draft = Draft(conversation, entry.id, 1, 0, (), 0, b"x", start_digest(entry.id, 1))
            peer.send(Ids(conversation, (entry.id,)), draft)
        assert peer.received == []


def test_a_refused_creation_shows_a_stranger_nothing():
    writer = Writer(1)
    scene = Scene(Policy(creators=frozenset({writer.public})))
    member = scene.grant(EVE.public)
    revoked = scene.writer.write(scene.id, Member(Revocation(EVE.public)), parents=[member])
    scene.begin().client.append(member)
    scene.client.append(revoked)
    empty = Hub(HUB_KEY, scene.hub.policy)
    own = EVE.genesis()
    expected = {
        (own,): "CONVERSATION_NOT_FOUND",
        (scene.genesis,): "CONVERSATION_NOT_FOUND",
        (scene.genesis, member): "CREATE_FORBIDDEN",
    }
    for entries, reason in expected.items():
        here = push(scene.hub, EVE, scene.id, *entries)
        assert here == push(empty, EVE, scene.id, *entries) == [reason] * len(entries)
    assert push(empty, EVE, ConversationId(own.id), own) == ["CREATE_FORBIDDEN"]
    assert not empty.shelf


def test_no_entry_of_a_stranger_stays_pending(scene: Scene):
    peer = scene.network.connect(EVE.public)
    first = EVE.write(scene.id, Member(Grant(EVE.public, Role.WRITER)), parents=[scene.genesis])
    peer.send(Entries(scene.id, (first,)))
    assert of(Fault, peer.received)[-1].reason == "CONVERSATION_NOT_FOUND"
    assert not scene.held.log.pending
    assert not scene.hub.links[peer.link_id].intake.pending_bytes


def test_a_stranger_drops_no_pending_entry_of_a_member(scene: Scene):
    first = scene.grant(Writer(2).public)
    second = scene.grant(Writer(3).public)
    scene.client.send(Entries(scene.id, (second,)))
    scene.network.connect(EVE.public).send(Entries(scene.id, (second,)))
    assert second.id in scene.held.log.pending
    scene.client.send(Entries(scene.id, (first,)))
    assert second.id in scene.held.log.entries


# --- hosts that name themselves -------------------------------------------------------

PROFILE = ProfileInfo(Digest(bytes(32)), "p", 1)


@pytest.mark.parametrize(
    "host",
    [
        HostInfo(Writer(2).public, "127.0.0.1:1", ()),
        HostInfo(EVE.public, "x" * 257, ()),
        HostInfo(EVE.public, "", (replace(PROFILE, name="\u00e9" * 129),)),
        HostInfo(EVE.public, "", (PROFILE,) * 17),
    ],
)
def test_a_host_describes_its_own_key_within_limits(scene: Scene, host: HostInfo):
    peer = scene.network.connect(EVE.public, hello=Hello((1,), host=host))
    (close,) = of(Close, peer.received)
    assert close.fault.reason == "ARGUMENT_INVALID"
    (welcome,) = of(Welcome, scene.network.connect(Writer(2).public).received)
    assert welcome.hosts == ()


def test_a_welcome_fits_a_frame_with_any_number_of_hosts(scene: Scene):
    text = "x" * limits.HOST_TEXT_BYTES_MAX
    longest = replace(PROFILE, name=text, numerics=text)
    first = Writer(100)
    for number in range(limits.HOSTS_MAX + 5):
        key = Writer(100 + number).public
        host = HostInfo(key, "x" * limits.HOST_TEXT_BYTES_MAX, (longest,) * 16)
        link_id = scene.hub.connect(key, 0.0)
        scene.hub.receive(link_id, Hello((1,), host=host), 0.0)
    (welcome,) = of(Welcome, scene.network.connect(Writer(2).public).received)
    assert len(encode_frame(welcome, "to_client")) < limits.FRAME_BYTES_MAX
    assert len(welcome.hosts) == limits.HOSTS_MAX
    assert first.public in {host.key for host in welcome.hosts}


# --- pending entries --------------------------------------------------------------------


def test_a_link_is_offered_entries_its_own_entries_released(scene: Scene):
    other = scene.network.connect(scene.writer.public, shelf=shelf_of(scene.genesis))
    other.open(scene.id)
    first, second, third = scene.chain(3)
    scene.client.send(Entries(scene.id, (second,)))
    other.send(Entries(scene.id, (third,)))
    before = len(other.received)
    other.append(first)
    offered = [e.id for m in of(Entries, other.received[before:]) for e in m.entries]
    assert offered == [second.id]
    assert second.id in other.shelf[scene.id].log.entries


def test_an_ack_names_nothing_that_its_link_did_not_send(scene: Scene):
    """It named the later entry of the lane alone, which another link had brought.

    The client does not hold that one, and could not tell from it that its own is durable.
    """
    other = scene.network.connect(scene.writer.public, shelf=shelf_of(scene.genesis))
    other.open(scene.id)
    first, second = scene.chain(2)
    scene.client.send(Entries(scene.id, (second,)))
    before = len(other.received)
    other.append(first)
    assert of(Ack, other.received[before:]) == [Ack(scene.id, (first.id,))]
    assert second.id in scene.held.log.entries


def test_whoever_sends_a_pending_entry_learns_for_what_it_waits(scene: Scene):
    """The second link that sent it got no answer, and nothing else told it so."""
    other = scene.network.connect(scene.writer.public)
    first, second = scene.chain(2)
    for link in (scene.client, other, other):
        before = len(link.received)
        link.send(Entries(scene.id, (second,)))
        (fault,) = of(Fault, link.received[before:])
        assert (fault.reason, fault.missing) == ("ENTRIES_MISSING", (first.id,))
    charged = scene.hub.links[other.link_id].intake.pending_bytes
    assert charged == 0, "the link that brought it first is charged for it (ENT-12)"


def test_pending_bytes_of_all_links_are_bounded():
    scene = Scene().begin()
    big, small = scene.chain(2), Writer(1, epoch=2)
    pending = [scene.writer.write(scene.id, said("x" * 9000), parents=[big[-1]])]
    pending.append(scene.writer.write(scene.id, said("x" * 9000), parents=[pending[0]]))
    scene.hub.policy = Policy(pending_bytes_max=20_000)
    modest = scene.network.connect(scene.writer.public)
    lacking = small.write(scene.id, said("lacking"), parents=[scene.genesis])
    late = small.write(scene.id, said("y" * 1500), parents=[lacking])
    modest.send(Entries(scene.id, (late,)))
    scene.client.send(Entries(scene.id, tuple(pending)))
    assert of(Fault, scene.client.received)[-1].reason == "PENDING_FULL"
    assert "PENDING_FULL" not in {f.reason for f in of(Fault, modest.received)}
    assert set(scene.held.log.pending) == {late.id}


def test_a_link_is_not_charged_for_entries_others_have_released(scene: Scene):
    first, freed, absent, pending = scene.chain(4)
    del absent
    scene.client.send(Entries(scene.id, (freed,)))
    scene.give(first)
    charged = scene.hub.links[scene.client.link_id].intake.pending_bytes
    assert charged >= freed.size_bytes
    scene.hub.policy = Policy(pending_bytes_max=limits.PENDING_ENTRY_BYTES_MIN)
    modest = scene.network.connect(scene.writer.public)
    modest.send(Entries(scene.id, (pending,)))
    assert "PENDING_FULL" not in [*scene.client.faults, *modest.faults]
    assert set(scene.held.log.pending) == {pending.id}


def test_a_full_conversation_admits_its_owners_membership_entries():
    scene = Scene(Policy(entries_max=2)).begin()
    (entry,) = scene.chain(1)
    scene.client.append(entry)
    member = Writer(2)
    granted = scene.grant(member.public)
    scene.client.append(granted)
    assert granted.id in scene.held.log.entries
    joined = member.write(scene.id, Member(Grant(EVE.public, Role.WRITER)), parents=[granted])
    more = scene.chain(1)[0]
    assert push(scene.hub, scene.writer, scene.id, more) == ["QUOTA_EXCEEDED"]
    assert push(scene.hub, member, scene.id, joined) == ["QUOTA_EXCEEDED"]


def test_a_junior_owner_keeps_nobody_from_leaving_or_removing_it(
    monkeypatch: pytest.MonkeyPatch,
):
    """The membership entries of all owners had one reserve."""
    monkeypatch.setattr(limits, "MEMBERSHIP_RESERVE", 4)
    scene = Scene(Policy(entries_max=4)).begin()
    junior, reader = Writer(2), Writer(4)
    scene.client.append(scene.grant(junior.public, Role.OWNER))
    scene.client.append(scene.grant(reader.public, Role.READER))
    keys = [Writer(number).public for number in range(10, 20)]
    last, grants = scene.genesis, list[Entry]()
    for key in keys:
        last = junior.write(scene.id, Member(Grant(key, Role.READER)), parents=[last])
        grants.append(last)
    found = push(scene.hub, junior, scene.id, *grants)
    assert found[:5] == ["durable"] * 5
    assert set(found[5:]) == {"QUOTA_EXCEEDED"}
    words = scene.writer.write(scene.id, said("more"), parents=[scene.genesis])
    assert push(scene.hub, scene.writer, scene.id, words) == ["QUOTA_EXCEEDED"]
    resigned = reader.write(scene.id, Member(Revocation(reader.public)), parents=[scene.genesis])
    assert push(scene.hub, reader, scene.id, resigned) == ["durable"]
    assert push(scene.hub, scene.writer, scene.id, scene.revoke(junior.public)) == ["durable"]
    assert not scene.held.is_member(junior.public)


# --- credit and faults ------------------------------------------------------------------


@pytest.mark.parametrize("sent_bytes", [2**64 - 1, 3 * limits.CREDIT_BYTES])
def test_a_ping_can_not_state_more_sent_bytes_than_allowed(scene: Scene, sent_bytes: int):
    scene.client.send(Ping(1, sent_bytes))
    (close,) = of(Close, scene.client.received)
    assert close.fault.reason == "CREDIT_EXCEEDED"


def test_a_fault_is_cut_when_it_is_created():
    missing = [bytes([n % 256, n // 256]) * 16 for n in range(25_600)]
    fault = Fault.of(EntriesMissing(missing=missing))
    assert 0 < len(fault.missing) <= limits.METADATA_BYTES_MAX // 64


def test_nothing_is_queued_for_a_link_that_has_ended(scene: Scene):
    link_id = scene.hub.connect(scene.writer.public, 0.0)
    for message in (HELLO, Open(scene.id, scene.held.log.digest), Close()):
        scene.hub.receive(link_id, message, 0.0)
    link = scene.hub.links[link_id]
    assert link.phase is Phase.CLOSED
    scene.give(*scene.chain(3))
    link.offer_drafts(scene.id, scene.genesis.id)
    channel = link.channels[scene.id]
    assert not channel.outgoing
    assert not channel.drafts_due


# --- hints --------------------------------------------------------------------------------


def test_a_watchers_hint_is_of_the_step_that_checked_its_membership(scene: Scene):
    bob = Writer(2)
    granted = scene.grant(bob.public)
    scene.give(granted)
    link_id = scene.hub.connect(bob.public, 0.0, watches=True)
    scene.hub.receive(link_id, HELLO, 0.0)
    opened = scene.hub.receive(link_id, Open(scene.id, Digest(bytes(32)), ()), 0.0)
    ((_, hint),) = opened.hints
    revoked = scene.writer.write(scene.id, Member(Revocation(bob.public)), parents=[granted])
    secret = scene.chain(1)[0]
    scene.hub.begin_push(scene.writer.public).whole(Entries(scene.id, (revoked,)), 0.0)
    effects, _ = scene.hub.begin_push(scene.writer.public).whole(Entries(scene.id, (secret,)), 0.0)
    assert effects.hints == ()
    assert secret.id not in hint.parents


def test_hints_are_for_watchers_alone(scene: Scene):
    effects, _ = scene.hub.begin_push(scene.writer.public).whole(
        Entries(scene.id, tuple(scene.chain(1))), 0.0
    )
    assert [type(f.message) for _, f in effects.send] == [Entries]
    assert effects.hints == ()
