"""Entries that digest and sync are not about, on the way to a hub (ORD-13, ORD-16, ORD-17)."""

import pytest

from replica.link.events import SyncState
from replica.link.messages import Ack, Entries, Fault
from replica.log.body import Grant, Join, Member, Revocation, Role
from replica.log.entry import Entry
from replica.refusals import EntriesMissing
from replica.testing import Peer, of
from tests.support.scene import Scene
from tests.support.stories import cut_at
from tests.support.writers import Writer, said


class Club(Scene):
    """A conversation with a writer and a reader, all linked to the hub."""

    def __init__(self) -> None:
        super().__init__()
        self.begin()
        self.bob, self.eve = Writer(2), Writer(3)
        self.bobs = self.join(self.bob)
        self.eves = self.join(self.eve, Role.READER)

    def murmur(self) -> Entry:
        return self.eve.write(self.id, Join(), parents=[self.genesis], track=1)

    def held_by(self, peer: Peer, entry: Entry) -> bool:
        return entry.id in peer.held(self.id).log.entries


@pytest.fixture
def club() -> Club:
    return Club()


def test_an_uncovered_entry_is_refused_and_never_acked(club: Club) -> None:
    murmur = club.murmur()
    acks = len(of(Ack, club.eves.received))
    club.eves.send(Entries(club.id, (murmur,)))
    assert [(f.reason, f.entry) for f in of(Fault, club.eves.received)][-1:] == [
        ("ROLE_FORBIDS", murmur.id)
    ]
    assert len(of(Ack, club.eves.received)) == acks
    _, outcomes = club.hub.begin_push(club.eve.public).whole(Entries(club.id, (murmur,)), 0.0)
    assert [fault.reason for fault in outcomes.values() if fault] == ["ROLE_FORBIDS"]
    assert not club.held_by(club.bobs, murmur)
    assert not club.held_by(club.client, murmur)


def test_an_uncovered_entry_is_handed_to_nobody_who_names_it(club: Club) -> None:
    """A member that named it in ENTRIES_MISSING got a reader's refused entry."""
    murmur = club.murmur()
    club.eves.send(Entries(club.id, (murmur,)))
    lacks = (murmur.id, club.genesis.id)
    club.bobs.send(Fault(EntriesMissing.reason, conversation=club.id, missing=lacks))
    assert [e.id for m in of(Entries, club.bobs.received)[-1:] for e in m.entries] == [
        club.genesis.id
    ]
    assert not club.held_by(club.bobs, murmur)


def test_a_readers_client_stays_synchronized_beside_an_entry_that_was_refused(club: Club) -> None:
    club.eves.append(club.murmur())
    assert club.state(club.eves) is SyncState.SYNCHRONIZED
    club.say("on")
    assert club.eves.held(club.id).log.digest == club.held.log.digest


def test_what_a_grant_makes_covered_reaches_all_members_with_it(club: Club) -> None:
    murmur = club.murmur()
    club.eves.append(murmur)
    club.client.append(club.grant(club.eve.public, Role.WRITER))
    for peer in (club.client, club.bobs, club.eves):
        assert club.held_by(peer, murmur)
        assert peer.held(club.id).log.digest == club.held.log.digest
        assert club.state(peer) is SyncState.SYNCHRONIZED


def test_what_a_grant_makes_covered_is_offered_beside_a_later_change_without_effect(
    club: Club,
) -> None:
    murmur, fay = club.murmur(), Writer(4)
    club.eves.send(Entries(club.id, (murmur,)))
    fays = club.join(fay, Role.READER)
    grant = club.grant(club.eve.public, Role.WRITER)
    change = Member(Grant(fay.public, Role.OWNER))
    void = fay.write(club.id, change, parents=[grant])
    fays.send(Entries(club.id, (grant, void)))
    assert club.at_hub(void)
    assert club.held_by(club.bobs, murmur)
    assert not club.held_by(club.bobs, void)


def test_what_a_newcomers_log_makes_covered_is_offered_beside_a_change_that_had_to_wait(
    club: Club,
) -> None:
    murmur, fay = club.murmur(), Writer(4)
    club.eves.send(Entries(club.id, (murmur,)))
    log = [*club.held.log.in_send_order(club.held.log.covered())]
    log += [club.grant(club.eve.public, Role.WRITER), club.grant(fay.public, Role.READER)]
    said_once = club.writer.write(club.id, said("once"), parents=[club.genesis])
    change = Member(Revocation(Writer(5).public, (cut_at(said_once),)))
    end = club.writer.write(club.id, change, parents=[log[-1]], listed=[said_once])
    fays = club.network.connect(fay.public)
    fays.send(Entries(club.id, (*log, said_once, end)))
    assert club.at_hub(end)
    assert club.held_by(club.bobs, murmur)


def test_a_hub_that_kept_nothing_uncovered_gets_it_after_the_grant(club: Club) -> None:
    murmur = club.murmur()
    club.eves.held(club.id).admit(murmur)  # written offline: the hub has never seen it
    club.client.append(club.grant(club.eve.public, Role.WRITER))
    assert club.at_hub(murmur)
    assert club.held_by(club.bobs, murmur)
    assert club.state(club.eves) is SyncState.SYNCHRONIZED


def test_an_acked_entry_behind_a_cut_is_kept_and_offered_once_named(club: Club) -> None:
    kept = club.bob.write(club.id, said("kept"), parents=[club.genesis])
    cut_off = club.bob.write(club.id, said("cut off"), parents=[kept])
    club.bobs.append(kept, cut_off)
    last = club.writer.last(club.id, 3)
    assert last is not None
    body = Member(Revocation(club.bob.public, (cut_at(kept),)))
    club.client.append(club.writer.write(club.id, body, parents=[last], listed=[kept]))
    assert club.at_hub(cut_off)
    assert cut_off.id not in club.held.log.covered()
    late = Writer(1, epoch=2).write(club.id, said("re"), parents=[cut_off])
    fresh = club.network.connect(club.eve.public)
    fresh.open(club.id)
    assert not club.held_by(fresh, cut_off)
    club.client.append(late)
    assert club.held_by(fresh, cut_off)
    assert fresh.held(club.id).log.digest == club.held.log.digest


def test_a_named_entry_is_sent_again_although_it_was_refused(club: Club) -> None:
    murmur = club.murmur()
    club.bobs.held(club.id).admit(murmur)
    club.bobs.send(Entries(club.id, (murmur,)))
    assert club.bobs.faults[-1] == "ROLE_FORBIDS"
    club.bobs.append(club.bob.write(club.id, said("re"), parents=[murmur]))
    assert club.held_by(club.client, murmur)
    for peer in (club.client, club.bobs, club.eves):
        assert club.state(peer) is SyncState.SYNCHRONIZED
