"""A request that is sealed and answered, for the tests of single rules."""

from replica.conversation.conversation import Conversation
from replica.ids import EntryId
from replica.log.body import Grant, Member, Request, Role, Sampling
from replica.log.entry import Entry
from tests.support.stories import answer, seal_of
from tests.support.writers import Writer, said


class Turn:
    """An owner, a host, one sealed and answered request."""

    def __init__(self) -> None:
        """Write the first turn."""
        self.ada, self.hal = Writer(1), Writer(2)
        self.genesis = self.ada.genesis()
        self.held = Conversation(self.genesis.conversation)
        self.admit(self.genesis)
        self.grant(self.hal, Role.HOST, self.genesis)
        self.hello = self.say("hello", self.genesis)
        self.ask = self.request(self.hello)
        self.seal = self.sealed(self.ask, [self.hello, self.ask])
        self.answer = self.admit(
            self.hal.write(self.held.id, answer(), parents=[self.seal], basis=self.seal)
        )

    def admit(self, entry: Entry) -> Entry:
        """Admit and return."""
        self.held.admit(entry)
        return entry

    def of(self, entry_id: EntryId) -> Entry:
        """Return an entry by its id."""
        return self.held.log.entries[entry_id]

    def grant(self, writer: Writer, role: Role, *parents: Entry) -> Entry:
        """Grant a role."""
        body = Member(Grant(writer.public, role))
        return self.admit(self.ada.write(self.held.id, body, parents=parents))

    def say(self, words: str, *parents: Entry) -> Entry:
        """Write a message."""
        return self.admit(self.ada.write(self.held.id, said(words), parents=parents))

    def request(self, *parents: Entry, basis: Entry | None = None) -> Entry:
        """Write a request."""
        body = Request(self.hal.public, Sampling())
        return self.admit(self.ada.write(self.held.id, body, parents=parents, basis=basis))

    def sealed(
        self,
        request: Entry,
        entries: list[Entry],
        prev: Entry | None = None,
        by: Writer | None = None,
    ) -> Entry:
        """Seal a request, by `hal` unless another host is given."""
        held = self.held
        ids = tuple(e.id for e in entries)
        body = seal_of(held, request.id, ids, prev.id if prev else None)
        listed = [*entries, *(held.log.entries[i] for i in body.membership_heads)]
        listed += [prev] if prev else []
        host = by or self.hal
        return self.admit(host.write(held.id, body, parents=[request], listed=listed))
