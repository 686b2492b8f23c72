"""The author of entries: lanes, lamports, tracks, refusals (spec/02-entry §7)."""

import pytest

from replica.conversation.author import Author, ClockInvalid
from replica.conversation.conversation import Conversation
from replica.ids import Digest, EntryId, Track
from replica.limits import BODY_BYTES_MAX, SEAL_ENTRIES_MAX
from replica.log.admission import Admitted
from replica.log.body import (
    Body,
    Cancel,
    Cut,
    FinishReason,
    Generation,
    Genesis,
    Grant,
    Join,
    Member,
    Message,
    Request,
    Revocation,
    Role,
    Sampling,
    Seal,
    Speaker,
    Text,
)
from replica.log.entry import Conflict, Entry
from replica.refusals import BodyTooLarge, CriticalKindUnknown, NotAllowed
from tests.support.writers import Writer, said

SALT = bytes(16)


class Scene:
    """An author with a conversation."""

    def __init__(self) -> None:
        """Write the genesis."""
        self.author = Author(Writer(1).key, epoch=9)
        genesis = self.author.genesis(Genesis((self.author.public,)), salt=SALT, time_ms=5)
        self.genesis = genesis.id
        self.held = Conversation(genesis.conversation)
        self.admit(genesis)

    def admit(self, entry: Entry) -> Entry:
        """Admit an entry; return it."""
        assert isinstance(self.held.admit(entry), Admitted)
        return entry

    def write(self, body: object, *parents: EntryId, **fields: object) -> Entry:
        """Write an entry and admit it."""
        named = parents or (self.genesis,)
        entry = self.author.write(
            self.held,
            body,
            parents=named,
            salt=SALT,
            time_ms=6,
            **fields,  # type: ignore[arg-type]
        )
        return self.admit(entry)


def test_a_request_follows_the_cancels_of_withdrawn_messages_that_it_reaches() -> None:
    scene = Scene()
    words = scene.write(said("oops"))
    reply = scene.write(said("what?"), words.id)
    asking = Request(Writer(2).public, Sampling())
    assert scene.write(asking, reply.id).header.parents == (reply.id,)
    gone = scene.write(Cancel(), words.id)
    assert set(scene.write(asking, reply.id).header.parents) == {reply.id, gone.id}
    assert scene.write(said("more"), reply.id).header.parents == (reply.id,)


def test_a_time_before_1970_is_refused() -> None:
    scene = Scene()
    body = Genesis((scene.author.public,))
    with pytest.raises(ClockInvalid):
        scene.author.genesis(body, salt=SALT, time_ms=-1)
    parents = (scene.genesis,)
    with pytest.raises(ClockInvalid):
        scene.author.write(scene.held, said("hi"), parents=parents, salt=SALT, time_ms=-1)
    scene.admit(scene.author.write(scene.held, said("hi"), parents=parents, salt=SALT, time_ms=0))


def test_a_genesis_is_the_first_entry_of_its_lane_and_names_nothing() -> None:
    body = Genesis((Writer(1).public,))
    header = Author(Writer(1).key, 9).genesis(body, salt=SALT, time_ms=5).header
    assert (header.seq, header.lamport, header.critical) == (0, 0, False)
    assert header.ancestors() == ()


def test_a_lane_is_numbered_without_gaps_per_track() -> None:
    scene = Scene()
    first, second = scene.write(said("a")), scene.write(said("b"))
    grant = scene.write(Member(Grant(Writer(2).public, Role.WRITER)))
    assert [e.header.seq for e in (first, second, grant)] == [0, 1, 0]
    assert (second.header.prev, grant.header.prev) == (first.id, None)
    assert first.header.epoch == 9


def test_lamport_exceeds_everything_the_entry_names() -> None:
    scene = Scene()
    last = scene.genesis
    for _ in range(3):
        last = scene.write(said("x"), last).id
    entry = scene.held.log.entries[last]
    cut = Cut(9, Track.CONVERSATION, 2, last)
    revocation = scene.write(Member(Revocation(scene.author.public, (cut,))))
    assert entry.header.lamport == 3
    assert revocation.header.lamport == 4


def test_parents_are_sorted_and_given_once() -> None:
    scene = Scene()
    ids = [scene.write(said(str(i))).id for i in range(4)]
    entry = scene.write(said("x"), *reversed(ids), ids[0])
    assert entry.header.parents == tuple(sorted(ids))


def test_a_join_is_on_the_track_of_its_parents() -> None:
    scene = Scene()
    grants = [scene.write(Member(Grant(Writer(n).public, Role.READER))).id for n in (2, 3)]
    assert scene.write(Join(), *grants).header.track == Track.MEMBERSHIP
    assert scene.write(Join(), scene.genesis).header.track == Track.CONVERSATION


def test_a_request_may_queue_on_a_basis() -> None:
    scene = Scene()
    entry = scene.write(said("x"), conflict=Conflict.QUEUE)
    assert entry.header.conflict == Conflict.QUEUE
    assert entry.header.basis is None


def test_too_large_a_body_is_refused_before_it_is_signed() -> None:
    scene = Scene()
    body = Message(Speaker.USER, (Text("x" * BODY_BYTES_MAX),))
    with pytest.raises(BodyTooLarge):
        scene.write(body)
    assert scene.held.next_position(scene.author.lane(Track.CONVERSATION)) == (0, None)


def test_nobody_writes_a_kind_that_their_role_does_not_allow() -> None:
    scene, reader = Scene(), Author(Writer(2).key, epoch=3)
    grant = scene.write(Member(Grant(reader.public, Role.READER)), scene.genesis)
    with pytest.raises(NotAllowed):
        reader.write(scene.held, said("hi"), parents=(grant.id,), salt=SALT, time_ms=5)
    with pytest.raises(NotAllowed):
        Author(Writer(3).key, epoch=3).write(
            scene.held, Join(), parents=(grant.id,), salt=SALT, time_ms=5
        )


def test_a_reader_leaves_in_the_one_form_that_counts() -> None:
    scene, reader = Scene(), Author(Writer(2).key, epoch=3)
    grant = scene.write(Member(Grant(reader.public, Role.READER)), scene.genesis)
    leave = Member(Revocation(reader.public))
    with pytest.raises(NotAllowed):
        reader.write(scene.held, leave, parents=(grant.id,), salt=SALT, time_ms=5)
    scene.admit(reader.write(scene.held, leave, parents=(scene.genesis,), salt=SALT, time_ms=5))
    assert not scene.held.log.membership.is_member(reader.public)


def test_a_reader_that_has_begun_the_lane_leaves_in_another() -> None:
    scene, reader, writer = Scene(), Writer(2), Writer(3)
    grant = scene.write(Member(Grant(reader.public, Role.READER)), scene.genesis)
    scene.write(Member(Grant(writer.public, Role.WRITER)), grant.id)
    for key in (reader, writer):
        scene.admit(key.write(scene.held.id, Member(Revocation(key.public)), parents=[grant]))
    authors = [Author(key.key, epoch) for key in (reader, writer) for epoch in (key.epoch, 7)]
    leave = [Member(Revocation(one.public)) for one in authors]
    needs = [a.needs_new_epoch(scene.held, b) for a, b in zip(authors, leave, strict=True)]
    assert needs == [True, False, False, False]


def test_no_entry_names_an_uncovered_one() -> None:
    scene, reader = Scene(), Writer(2)
    scene.write(Member(Grant(reader.public, Role.READER)))
    odd = reader.write(scene.held.id, Join(), parents=[scene.held.log.entries[scene.genesis]])
    scene.admit(odd)
    with pytest.raises(NotAllowed):
        scene.write(said("x"), odd.id)
    header = odd.header
    cut = Cut(header.epoch, header.track, header.seq, odd.id)
    with pytest.raises(NotAllowed):
        scene.write(Member(Revocation(reader.public, (cut,))))


def test_a_seal_that_nobody_would_admit_is_not_written() -> None:
    scene = Scene()
    scene.write(Member(Grant(scene.author.public, Role.HOST)))
    listed = (scene.genesis,) * (SEAL_ENTRIES_MAX + 1)
    digest = Digest(bytes(32))
    ones = (1,) * len(listed)
    seal = Seal(scene.genesis, None, listed, digest, digest, digest, ones, (), ())
    with pytest.raises(BodyTooLarge):
        scene.write(seal)


def test_nothing_is_written_where_a_critical_kind_is_unknown() -> None:
    scene = Scene()
    odd = critical(scene, Writer(1))
    assert scene.held.log.membership.is_visible(odd)
    with pytest.raises(CriticalKindUnknown):
        scene.write(said("x"))
    with pytest.raises(CriticalKindUnknown):
        scene.write(Join())


def test_a_critical_kind_never_stops_changes_of_membership() -> None:
    scene = Scene()
    bea = Writer(2)
    scene.write(Member(Grant(bea.public, Role.OWNER)))
    critical(scene, bea)
    with pytest.raises(CriticalKindUnknown):
        scene.write(said("x"))
    scene.write(Member(Revocation(bea.public)))
    scene.write(said("x"))


@pytest.mark.parametrize("role", [Role.READER, Role.WRITER, Role.HOST])
def test_a_critical_kind_stops_nobody_where_no_owner_wrote_it(role: Role) -> None:
    scene = Scene()
    eve = Writer(2)
    scene.write(Member(Grant(eve.public, role)))
    odd = critical(scene, eve)
    assert (odd.id in scene.held.log.covered()) == (role is not Role.READER)
    assert not scene.held.log.membership.is_visible(odd)
    scene.write(said("x"))


def critical(scene: Scene, author: Writer) -> Entry:
    """Write an entry of an unknown critical kind."""
    genesis = scene.held.log.entries[scene.genesis]
    return scene.admit(
        author.write(scene.held.id, Join(), parents=[genesis], kind=99, critical=True)
    )


def test_the_same_inputs_give_the_same_bytes() -> None:
    assert Scene().write(said("x")) == Scene().write(said("x"))


@pytest.mark.parametrize(("surplus", "fits"), [(0, True), (1, False)])
def test_a_body_may_have_exactly_the_greatest_size(surplus: int, fits: bool) -> None:
    scene, size = Scene(), 400_000
    sample = scene.write(Message(Speaker.USER, (Text("x" * size),)))
    overhead = sample.header.body_bytes - size
    text = "x" * (BODY_BYTES_MAX - overhead + surplus)
    if fits:
        entry = scene.write(Message(Speaker.USER, (Text(text),)))
        assert entry.header.body_bytes == BODY_BYTES_MAX
        assert entry.header.critical is False
    else:
        with pytest.raises(BodyTooLarge):
            scene.write(Message(Speaker.USER, (Text(text),)))


def test_what_ends_a_request_is_not_written_behind_what_the_hub_refused() -> None:
    scene = Scene()
    asked = scene.write(Request(Writer(3).public, Sampling(seed=1)))
    refused = {scene.write(said("more"), asked.id).id}
    seal = Seal(asked.id, None, (), Digest(b"p" * 32), Digest(b"c" * 32), Digest(b"r" * 32), (), ())
    ends = (Cancel(), seal, Generation((), (), 0, FinishReason.STOP))

    def needs(body: Body, parent: EntryId, refused: set[EntryId]) -> bool:
        return scene.author.needs_new_epoch(scene.held, body, (parent,), refused)

    assert all(needs(body, asked.id, refused) for body in ends)
    assert not any(needs(body, asked.id, set()) for body in ends)
    assert not needs(said("yet more"), asked.id, refused)  # it has no room in any lane
    assert not needs(Cancel(), *refused, refused)
