"""Conversations that a host is asked in, for the tests of whose turn it is."""

from model_host.scheduling.schedule import Begin, Bounds, Decision, Schedule
from replica.conversation.author import Author
from replica.conversation.conversation import Conversation
from replica.conversation.next_seal import sealable
from replica.ids import ConversationId, EntryId, PublicKey
from replica.limits import MEMBERSHIP_HEADS_MAX
from replica.log.body import (
    Body,
    Cancel,
    Generation,
    Grant,
    Member,
    Request,
    Role,
    Sampling,
)
from replica.log.entry import Conflict, Entry
from replica.order.tail import frontier
from tests.support.stories import answer, seal_of
from tests.support.writers import Writer, said

HOST = Writer(2)
NOW_MS = 1_000_000
FORK = Conflict.FORK


class Scene:
    """A conversation of one owner, in which HOST is granted HOST."""

    def __init__(
        self, number: int = 1, role: Role | None = Role.HOST, *, of: int | None = None
    ) -> None:
        """Begin conversation `number` of an owner of its own, or of that of number `of`."""
        self.number = number if of is None else of
        self.owner = Writer(b"owner %d" % self.number, epoch=1 if of is None else 1_000 + number)
        self.author = Author(HOST.key, 5)
        self.genesis = self.owner.genesis()
        self.held = Conversation(ConversationId(self.genesis.id))
        self.held.admit(self.genesis)
        if role is not None:
            self.grant(HOST.public, role)

    @property
    def id(self) -> ConversationId:
        return self.held.id

    def grant(self, key: PublicKey, role: Role) -> None:
        self.write(Member(Grant(key, role)), [self.genesis])

    def crowd(self) -> None:
        """Grant so many keys at once that one seal can't name all grants."""
        for number in range(MEMBERSHIP_HEADS_MAX + 6):
            owner = Writer(b"owner %d" % self.number, epoch=number + 2)
            grant = Member(Grant(PublicKey(bytes([number]) * 32), Role.READER))
            self.held.admit(owner.write(self.id, grant, parents=[self.genesis]))

    def write(
        self,
        body: Body,
        parents: list[Entry],
        basis: EntryId | None = None,
        conflict: Conflict = Conflict.QUEUE,
    ) -> Entry:
        at = self.held.log.entries[basis] if basis else None
        entry = self.owner.write(self.id, body, parents=parents, basis=at, conflict=conflict)
        self.held.admit(entry)
        return entry

    def ask(self, **fields: object) -> EntryId:
        """Say something at the end of the newest branch, and ask about it."""
        tips = self.held.order.tips()
        tip = tips[-1] if tips else None
        parents = [self.held.log.entries[i] for i in frontier(self.held.order, tip)]
        return self.ask_behind(parents, tip.id if tip else None, **fields)

    def ask_behind(
        self,
        parents: list[Entry],
        basis: EntryId | None,
        conflict: Conflict = Conflict.QUEUE,
        host: PublicKey = HOST.public,
        **fields: object,
    ) -> EntryId:
        message = self.write(said("hi"), parents, basis)
        body = Request(host, Sampling(), **fields)  # type: ignore[arg-type]
        return self.write(body, [message], basis, conflict).id

    def branch(self) -> EntryId:
        """Ask for another branch, from the first entry on."""
        return self.ask_behind([self.genesis], None, FORK)

    def cancel(self, request: EntryId) -> Entry:
        return self.write(Cancel(), [self.held.log.entries[request]])

    def seal(self, request: EntryId) -> EntryId:
        ready = sealable(self.held, request)
        assert ready is not None
        prev = ready.parent.id if ready.parent is not None else None
        body = seal_of(self.held, request, ready.entries, prev)
        seal = self.host_writes(body, (request,), prev)
        assert seal in self.held.order.nodes
        return seal

    def reply(self, seal: EntryId, body: Generation | None = None) -> EntryId:
        return self.host_writes(body or answer(), (seal,), seal)

    def host_writes(
        self, body: Body, parents: tuple[EntryId, ...], basis: EntryId | None = None
    ) -> EntryId:
        entry = self.author.write(
            self.held, body, parents=parents, basis=basis, salt=bytes(16), time_ms=1
        )
        self.held.admit(entry)
        return entry.id


def schedule(running_max: int = 9, per_owner: int = 9, waiting: int = 99) -> Schedule:
    return Schedule(HOST.public, Bounds(running_max, per_owner, waiting))


def take(asked: Schedule, *scenes: Scene, now_ms: int = NOW_MS) -> Decision | None:
    return asked.start_next([s.held for s in scenes], is_synchronized=lambda _: True, now_ms=now_ms)


def begun(asked: Schedule, *scenes: Scene) -> EntryId | None:
    """Return the request that is to begin, None where there is nothing to do."""
    decision = take(asked, *scenes)
    assert decision is None or isinstance(decision, Begin)
    return decision.request if decision is not None else None
