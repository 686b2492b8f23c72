"""Writing entries: lanes, lamports, tracks, refusals (spec/02-entry §7)."""

import pytest

from replica.conversation.author import Author
from replica.conversation.conversation import Conversation
from replica.ids import Digest, EntryId, Track
from replica.limits import BODY_BYTES_MAX, SEAL_ENTRIES_MAX
from replica.log.admission import Admitted
from replica.log.body import (
    Cut,
    Genesis,
    Grant,
    Join,
    Member,
    Message,
    Revocation,
    Role,
    Seal,
    Speaker,
    Text,
)
from replica.log.entry import Conflict, Entry
from replica.refusals import BodyTooLarge, CriticalKindUnknown, NotAllowed
from tests.support.writers import Writer, said

SALT = bytes(16)


class Desk:
    """An author with a conversation."""

    def __init__(self) -> None:
        """Begin one."""
        self.author = Author(Writer(1).key, epoch=9)
        genesis = self.author.genesis(Genesis((self.author.public,)), salt=SALT, time_ms=5)
        self.genesis = genesis.id
        self.held = Conversation(genesis.conversation)
        self.admit(genesis)

    def admit(self, entry: Entry) -> Entry:
        """Admit what was written."""
        assert isinstance(self.held.admit(entry), Admitted)
        return entry

    def write(self, body: object, *parents: EntryId, **place: object) -> Entry:
        """Write and admit."""
        named = parents or (self.genesis,)
        entry = self.author.write(
            self.held,
            body,
            parents=named,
            salt=SALT,
            time_ms=6,
            **place,  # type: ignore[arg-type]
        )
        return self.admit(entry)


def test_a_lane_is_numbered_without_gaps_per_track() -> None:
    desk = Desk()
    first, second = desk.write(said("a")), desk.write(said("b"))
    grant = desk.write(Member(Grant(Writer(2).public, Role.WRITER)))
    assert [e.header.seq for e in (first, second, grant)] == [0, 1, 0]
    assert (second.header.prev, grant.header.prev) == (first.id, None)
    assert first.header.epoch == 9


def test_lamport_exceeds_everything_the_entry_names() -> None:
    desk = Desk()
    last = desk.genesis
    for _ in range(3):
        last = desk.write(said("x"), last).id
    entry = desk.held.log.entries[last]
    cut = Cut(9, Track.CONVERSATION, 2, last)
    revocation = desk.write(Member(Revocation(desk.author.public, (cut,))))
    assert entry.header.lamport == 3
    assert revocation.header.lamport == 4


def test_parents_are_sorted_and_given_once() -> None:
    desk = Desk()
    ids = [desk.write(said(str(i))).id for i in range(4)]
    entry = desk.write(said("x"), *reversed(ids), ids[0])
    assert entry.header.parents == tuple(sorted(ids))


def test_a_join_stands_on_the_track_of_what_it_joins() -> None:
    desk = Desk()
    grants = [desk.write(Member(Grant(Writer(n).public, Role.READER))).id for n in (2, 3)]
    assert desk.write(Join(), *grants).header.track == Track.MEMBERSHIP
    assert desk.write(Join(), desk.genesis).header.track == Track.CONVERSATION


def test_a_request_may_queue_on_a_basis() -> None:
    desk = Desk()
    entry = desk.write(said("x"), conflict=Conflict.QUEUE)
    assert entry.header.conflict == Conflict.QUEUE
    assert entry.header.basis is None


def test_too_large_a_body_is_refused_before_it_is_signed() -> None:
    desk = Desk()
    body = Message(Speaker.USER, (Text("x" * BODY_BYTES_MAX),))
    with pytest.raises(BodyTooLarge):
        desk.write(body)
    assert desk.held.next_position(desk.author.lane(Track.CONVERSATION)) == (0, None)


def test_nobody_writes_what_their_role_does_not_take() -> None:
    desk, reader = Desk(), Author(Writer(2).key, epoch=3)
    grant = desk.write(Member(Grant(reader.public, Role.READER)), desk.genesis)
    with pytest.raises(NotAllowed):
        reader.write(desk.held, said("hi"), parents=(grant.id,), salt=SALT, time_ms=5)
    with pytest.raises(NotAllowed):
        Author(Writer(3).key, epoch=3).write(
            desk.held, Join(), parents=(grant.id,), salt=SALT, time_ms=5
        )
    leave = Member(Revocation(reader.public))
    desk.admit(reader.write(desk.held, leave, parents=(grant.id,), salt=SALT, time_ms=5))
    assert not desk.held.log.membership.is_member(reader.public)


def test_a_seal_that_nobody_would_admit_is_not_written() -> None:
    desk = Desk()
    desk.write(Member(Grant(desk.author.public, Role.HOST)))
    listed = (desk.genesis,) * (SEAL_ENTRIES_MAX + 1)
    digest = Digest(bytes(32))
    ones = (1,) * len(listed)
    seal = Seal(desk.genesis, None, listed, digest, digest, digest, ones, (), ())
    with pytest.raises(BodyTooLarge):
        desk.write(seal)


def test_nothing_is_written_where_a_critical_kind_is_unknown() -> None:
    desk = Desk()
    odd = critical(desk, Writer(1))
    assert desk.held.log.membership.is_visible(odd)
    with pytest.raises(CriticalKindUnknown):
        desk.write(said("x"))
    with pytest.raises(CriticalKindUnknown):
        desk.write(Join())


def test_a_critical_kind_never_stops_changes_of_membership() -> None:
    desk = Desk()
    bea = Writer(2)
    desk.write(Member(Grant(bea.public, Role.OWNER)))
    critical(desk, bea)
    with pytest.raises(CriticalKindUnknown):
        desk.write(said("x"))
    desk.write(Member(Revocation(bea.public)))
    desk.write(said("x"))


@pytest.mark.parametrize("role", [Role.READER, Role.WRITER, Role.HOST])
def test_a_critical_kind_stops_nobody_where_no_owner_wrote_it(role: Role) -> None:
    desk = Desk()
    eve = Writer(2)
    desk.write(Member(Grant(eve.public, role)))
    odd = critical(desk, eve)
    assert odd.id in desk.held.log.covered()
    assert not desk.held.log.membership.is_visible(odd)
    desk.write(said("x"))


def critical(desk: Desk, author: Writer) -> Entry:
    """Write an entry of a critical kind that nobody knows."""
    genesis = desk.held.log.entries[desk.genesis]
    return desk.admit(author.write(desk.held.id, Join(), parents=[genesis], kind=99, critical=True))


def test_the_same_inputs_give_the_same_bytes() -> None:
    assert Desk().write(said("x")) == Desk().write(said("x"))
