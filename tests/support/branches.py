"""A conversation that grows by turns: requests, seals, answers, CANCELs, on any branch."""

from replica.conversation.conversation import Conversation
from replica.conversation.next_seal import open_requests, sealable
from replica.log.body import Cancel, Grant, Member, Request, Revocation, Role, Sampling
from replica.log.entry import Conflict, Entry
from tests.support.stories import answer, seal_of
from tests.support.writers import Writer, said


class Scene:
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
        """Admit an entry; return it."""
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
        """Seal a request by the rule of coverage."""
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

    def refuse(self, request: Entry) -> Entry:
        """Refuse a request: answer it without a seal."""
        return self.add(self.hal.write(self.held.id, answer(), parents=[request]))

    def say(self, *parents: Entry, by: Writer | None = None) -> Entry:
        """Write a message."""
        return self.add((by or self.ada).write(self.held.id, said("x"), parents=parents))

    def void_seal(self, request: Entry) -> Entry:
        """Seal a request without the entries that it follows."""
        body = seal_of(self.held, request.id, (request.id,), None)
        listed = [self.held.log.entries[i] for i in body.membership_heads]
        entry = self.add(self.hal.write(self.held.id, body, parents=[request], listed=listed))
        assert entry.id in self.held.order.void
        return entry

    def turn(self, *parents: Entry, basis: Entry | None = None, fork: bool = False) -> list[Entry]:
        """Write a request, its seal and its answer."""
        request = self.ask(*parents, basis=basis, fork=fork)
        seal = self.seal(request)
        return [request, seal, self.answer(seal)]

    def open(self) -> list[bytes]:
        """Return the open requests of the host."""
        return list(open_requests(self.held, self.hal.public))
