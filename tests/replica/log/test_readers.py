"""What a reader's entries cost others: one resignation of a fixed form (spec/03-order §5, ORD-13).

Otherwise a reader could write in thousands of lanes, which everyone would hold and compare
for ever. Three ways were tried by which such lanes came back.
"""

import pytest

from replica.conversation.conversation import Conversation
from replica.ids import Track
from replica.log.body import Body, Cut, Grant, Join, Member, Revocation, Role
from replica.log.entry import Entry
from replica.log.revoking import cuts_at_heads
from tests.support.stories import cut_at
from tests.support.writers import Writer

LANES = 60


class Reader:
    """A conversation with a reader that wrote a JOIN in each of many lanes."""

    def __init__(self) -> None:
        self.ada, self.eve = Writer(1), Writer(2)
        self.genesis = self.ada.genesis()
        self.held = Conversation(self.genesis.conversation)
        self.admit(self.genesis)
        self.grant(Role.READER)
        self.joins = [
            self.admit(
                self.of_epoch(n).write(self.held.id, Join(), parents=[self.genesis], track=3)
            )
            for n in range(2, LANES + 2)
        ]

    def of_epoch(self, epoch: int) -> Writer:
        return Writer(2, epoch=epoch)

    def admit(self, entry: Entry) -> Entry:
        self.held.admit(entry)
        assert entry.id in self.held.log.entries
        return entry

    def grant(self, role: Role) -> Entry:
        return self.change(Member(Grant(self.eve.public, role)))

    def change(self, body: Body) -> Entry:
        held = self.held.log
        parents = [held.entries[i] for i in held.membership_heads()] or [self.genesis]
        return self.admit(self.ada.write(self.held.id, body, parents=parents))

    def leave(self, epoch: int, *parents: Entry) -> Entry:
        body = Member(Revocation(self.eve.public))
        named = parents or (self.genesis,)
        return self.admit(self.of_epoch(epoch).write(self.held.id, body, parents=named))

    def revoke_unseen(self, cut: Cut, listed: Entry) -> None:
        """Revoke the reader, following the genesis alone."""
        body = Member(Revocation(self.eve.public, (cut,)))
        self.admit(self.ada.write(self.held.id, body, parents=[self.genesis], listed=[listed]))

    @property
    def covered(self) -> list[Entry]:
        log = self.held.log
        return [
            log.entries[i] for i in log.covered() if log.entries[i].header.author == self.eve.public
        ]

    @property
    def is_member(self) -> bool:
        return self.held.is_member(self.eve.public)


def test_nothing_a_reader_writes_is_covered() -> None:
    scene = Reader()
    digest = scene.held.log.digest
    scene.admit(scene.eve.write(scene.held.id, Join(), parents=[scene.genesis], track=1))
    assert scene.covered == []
    assert scene.held.log.digest == digest
    assert not any(scene.held.log.membership.is_visible(join) for join in scene.joins)


def test_lanes_do_not_come_back_as_the_parents_of_a_resignation() -> None:
    scene = Reader()
    scene.leave(90, *scene.joins)
    assert scene.covered == []
    assert scene.is_member, "only the fixed form counts"


def test_lanes_do_not_come_back_as_resignations_in_many_epochs() -> None:
    scene = Reader()
    left = [scene.leave(epoch) for epoch in range(100, 120)]
    assert scene.covered == [min(left, key=lambda e: e.order_key)]
    assert not scene.is_member


def test_lanes_do_not_come_back_as_the_cuts_of_an_honest_revocation() -> None:
    scene = Reader()
    cuts = cuts_at_heads(scene.held.log, scene.eve.public)
    scene.change(Member(Revocation(scene.eve.public, cuts)))
    assert scene.covered == []
    assert not scene.is_member


def test_a_resignation_that_names_more_than_the_genesis_does_not_count() -> None:
    scene = Reader()
    second = scene.of_epoch(2).restored()
    second._last[scene.held.id, scene.joins[0].header.lane] = scene.joins[0]
    late = second.write(
        scene.held.id, Member(Revocation(scene.eve.public)), parents=[scene.genesis]
    )
    assert late.header.seq == 1
    scene.admit(late)
    cut = Member(Revocation(scene.eve.public, (cut_at(scene.joins[1]),)))
    scene.admit(
        scene.of_epoch(90).write(
            scene.held.id, cut, parents=[scene.genesis], listed=[scene.joins[1]]
        )
    )
    assert scene.covered == []
    assert scene.is_member


def test_of_several_the_first_inside_the_cuts_of_seniors_counts() -> None:
    scene = Reader()
    first, second = sorted((scene.leave(e) for e in (100, 101)), key=lambda e: e.order_key)
    scene.revoke_unseen(cut_at(second), second)
    assert scene.held.log.membership.resignations == {second.id}
    assert scene.covered == [second]
    fresh = Conversation(scene.held.id)
    for entry in scene.held.log.in_send_order(scene.held.log.covered()):
        fresh.admit(entry)
    assert first.id not in fresh.log.entries
    assert fresh.log.digest == scene.held.log.digest


def test_a_key_without_a_role_resigns_nothing() -> None:
    scene, zoe = Reader(), Writer(7)
    leave = zoe.write(scene.held.id, Member(Revocation(zoe.public)), parents=[scene.genesis])
    scene.held.admit(leave)
    assert leave.id in scene.held.log.pending
    reply = scene.admit(scene.ada.write(scene.held.id, Join(), parents=[leave]))
    assert leave.id in scene.held.log.entries, "an entry of a member follows it"
    assert reply.id in scene.held.log.covered()
    assert scene.held.log.membership.resignations == frozenset()
    assert zoe.public not in scene.held.log.membership.kept


@pytest.mark.parametrize("role", [Role.WRITER, Role.HOST, Role.OWNER])
def test_what_a_grant_makes_covered_is_offered_with_it(role: Role) -> None:
    scene = Reader()
    grant = scene.grant(role)
    log = scene.held.log
    assert log.offered([grant.id])[0] == grant.id
    assert set(log.offered([grant.id])) == {grant.id, *(e.id for e in scene.joins)}
    assert log.covered() == log.entries.keys()


def test_a_writer_resigns_with_cuts_and_parents_of_its_choice() -> None:
    scene = Reader()
    scene.grant(Role.WRITER)
    leave = scene.leave(200, *scene.joins)
    assert scene.held.log.membership.resignations == {leave.id}
    assert not scene.is_member


def test_the_document_is_folded_from_covered_entries_alone() -> None:
    scene = Reader()
    stray = scene.admit(
        scene.eve.write(scene.held.id, Join(), parents=[scene.genesis], track=Track.DOCUMENT)
    )
    assert scene.held.document.heads == (scene.genesis.id,)
    assert stray.id not in scene.held.log.covered()
