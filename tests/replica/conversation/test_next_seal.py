"""What a host may seal next (spec/03-order §4); cases are in spec/vectors/order.json."""

from replica.conversation.conversation import Conversation
from replica.conversation.next_seal import open_requests, sealable
from replica.log.body import Cancel, Cut, Grant, Member, Request, Revocation, Role, Sampling
from replica.log.entry import Conflict, Entry
from replica.log.kinds import Kind
from tests.support.stories import Story, answer, seal_of
from tests.support.writers import Writer, said


class Room:
    """An owner, a host and one message."""

    def __init__(self) -> None:
        """Write them."""
        self.ada, self.hal = Writer(1), Writer(2)
        self.genesis = self.ada.genesis()
        self.held = Conversation(self.genesis.conversation)
        self.add(self.genesis)
        self.grant = self.member(Grant(self.hal.public, Role.HOST), self.genesis)
        self.hello = self.add(self.ada.write(self.held.id, said("hi"), parents=[self.genesis]))

    def add(self, entry: Entry) -> Entry:
        """Admit and return."""
        self.held.admit(entry)
        return entry

    def member(self, change: Grant | Revocation, *parents: Entry) -> Entry:
        """Change the membership."""
        return self.add(self.ada.write(self.held.id, Member(change), parents=parents))

    def ask(
        self,
        *parents: Entry,
        basis: Entry | None = None,
        fork: bool = False,
        host: Writer | None = None,
        by: Writer | None = None,
    ) -> Entry:
        """Write a request."""
        return self.add(
            (by or self.ada).write(
                self.held.id,
                Request((host or self.hal).public, Sampling()),
                parents=parents or (self.hello,),
                basis=basis,
                conflict=Conflict.FORK if fork else Conflict.QUEUE,
            )
        )

    def cancel(self, request: Entry, by: Writer | None = None) -> Entry:
        """Write a CANCEL."""
        return self.add((by or self.ada).write(self.held.id, Cancel(), parents=[request]))

    def seal(self, request: Entry, by: Writer | None = None) -> Entry:
        """Seal as the rule says."""
        found = sealable(self.held, request.id)
        assert found is not None
        body = seal_of(
            self.held, request.id, found.entries, found.parent.id if found.parent else None
        )
        assert body.context_digest == found.context_digest
        assert body.membership_heads == found.membership_heads
        named = [*body.entries, *body.membership_heads]
        named += [body.prev_seal] if body.prev_seal else []
        listed = [self.held.log.entries[i] for i in named]
        by = by or self.hal
        return self.add(by.write(self.held.id, body, parents=[request], listed=listed))

    def answer(self, seal: Entry, by: Writer | None = None) -> Entry:
        """Answer a sealed request."""
        by = by or self.hal
        return self.add(by.write(self.held.id, answer(), parents=[seal], basis=seal))

    def open(self) -> list[bytes]:
        """Return the open requests of the host."""
        return list(open_requests(self.held, self.hal.public))


def test_a_request_is_open_until_it_is_answered() -> None:
    room = Room()
    request = room.ask()
    assert room.open() == [request.id]
    assert open_requests(room.held, room.ada.public) == []
    seal = room.seal(request)
    assert room.open() == [request.id]
    room.answer(seal)
    assert room.open() == []


def test_a_refused_request_is_closed() -> None:
    room = Room()
    request = room.ask()
    room.add(room.hal.write(room.held.id, answer(), parents=[request]))
    assert room.open() == []


def test_a_void_request_is_not_open() -> None:
    room = Room()
    bob = Writer(3)
    grant = room.member(Grant(bob.public, Role.WRITER), room.grant)
    body = Request(room.hal.public, Sampling())
    request = room.add(bob.write(room.held.id, body, parents=[room.hello]))
    assert room.open() == [request.id]
    room.member(Revocation(bob.public), grant)
    assert room.open() == []


def test_what_is_sealable_counts_once_sealed() -> None:
    for seed in range(25):
        story = Story(seed)
        story.grow(50)
        held = story.held
        for host in story.hosts:
            for request in open_requests(held, host.public):
                found = sealable(held, request)
                if found is None or request in held.order.seal_of:
                    continue
                prev_seal = found.parent.id if found.parent else None
                body = seal_of(held, request, found.entries, prev_seal)
                named = [request, *body.entries, *body.membership_heads]
                named += [prev_seal] if prev_seal else []
                entry = host.write(
                    held.id, body, parents=story.at(request), listed=story.at(*named)
                )
                story.add(entry)
                may_seal = held.log.membership.may_write(host.public, Kind.SEAL)
                assert (entry.id in held.order.nodes) == (
                    may_seal and entry.id in held.log.covered()
                )


def test_a_request_waits_while_its_basis_is_being_answered() -> None:
    room = Room()
    first = room.ask()
    seal = room.seal(first)
    follow = room.ask(first, basis=seal, fork=True)
    queued = room.ask(first, basis=seal)
    assert sealable(room.held, follow.id) is None
    assert sealable(room.held, queued.id) is None
    generation = room.answer(seal)
    over, after = sealable(room.held, follow.id), sealable(room.held, queued.id)
    assert over is not None
    assert after is not None
    assert over.entries == (follow.id,)
    assert after.entries == (generation.id, queued.id)


def test_a_queued_request_waits_for_the_end_of_its_branch() -> None:
    room = Room()
    seal = room.seal(room.ask())
    generation = room.answer(seal)
    left = room.ask(generation, basis=seal)
    queued = room.ask(generation, basis=seal)
    left_seal = room.seal(left)
    assert sealable(room.held, queued.id) is None
    room.answer(left_seal)
    found = sealable(room.held, queued.id)
    assert found is not None
    assert found.parent is not None
    assert found.parent.id == left_seal.id


# --- ways to get stuck, and out ---------------------------------------------------


class Stuck(Room):
    """A request that was sealed by a host which never answers, and another host."""

    def __init__(self) -> None:
        """Write them."""
        super().__init__()
        self.ida = Writer(4)
        self.bob = Writer(5)
        grant = self.member(Grant(self.ida.public, Role.HOST), self.grant)
        self.last_grant = self.member(Grant(self.bob.public, Role.WRITER), grant)
        self.first = self.ask()
        self.dead = self.seal(self.first)

    def lists(self, request: Entry) -> list[bytes] | None:
        """Return what a seal of the request would list on the dead one; None while it waits."""
        found = sealable(self.held, request.id)
        if found is None:
            return None
        assert found.parent is not None
        assert found.parent.id == self.dead.id
        return list(found.entries)


def test_a_request_behind_a_dead_host_waits_for_whoever_does_not_cancel_it() -> None:
    room = Stuck()
    for fork in (False, True):
        assert room.lists(room.ask(room.first, basis=room.dead, host=room.ida, fork=fork)) is None


def test_another_host_takes_over_from_a_dead_one_behind_a_cancel() -> None:
    room = Stuck()
    cancel = room.cancel(room.first)
    for fork in (False, True):
        over = room.ask(cancel, basis=room.dead, host=room.ida, fork=fork)
        assert room.lists(over) == [over.id]


def test_the_same_host_when_it_is_back_answers_what_was_cancelled_first() -> None:
    room = Stuck()
    over = room.ask(room.cancel(room.first), basis=room.dead)
    assert room.open() == [room.first.id, over.id]
    late = room.answer(room.dead)
    assert room.lists(over) == [late.id, over.id]


def test_what_waited_behind_a_dead_host_goes_on_behind_who_took_over() -> None:
    room = Stuck()
    waits = room.ask(room.first, basis=room.dead, host=room.ida)
    over = room.ask(room.cancel(room.first), basis=room.dead, host=room.ida)
    generation = room.answer(room.seal(over, room.ida), room.ida)
    found = sealable(room.held, waits.id)
    assert found is not None
    assert list(found.entries) == [generation.id, waits.id]


def test_another_host_takes_over_from_a_revoked_one() -> None:
    room = Stuck()
    header = room.dead.header
    cut = Cut(header.epoch, header.track, header.seq, room.dead.id)
    room.add(
        room.ada.write(
            room.held.id,
            Member(Revocation(room.hal.public, (cut,))),
            parents=[room.last_grant],
            listed=[room.dead],
        )
    )
    over = room.ask(room.cancel(room.first), basis=room.dead, host=room.ida)
    assert room.lists(over) == [over.id]


def test_an_owner_lets_go_of_what_a_member_who_left_had_asked() -> None:
    room = Stuck()
    asked = room.ask(room.cancel(room.first), basis=room.dead, by=room.bob)
    room.dead = room.seal(asked)
    room.member(Revocation(room.bob.public), room.last_grant)
    over = room.ask(room.cancel(asked), basis=room.dead, host=room.ida)
    assert room.lists(over) == [over.id]


def test_a_host_that_dies_before_it_seals_holds_nobody_up() -> None:
    room = Room()
    room.ask()
    ida = Writer(4)
    room.member(Grant(ida.public, Role.HOST), room.grant)
    beside = room.ask(host=ida)
    found = sealable(room.held, beside.id)
    assert found is not None
    assert found.parent is None
