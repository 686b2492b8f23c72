"""One conversation without a hub, grown entry by entry by its owner."""

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, EntryId
from replica.log.body import Grant, Member, Request, Role, Sampling
from replica.log.entry import Entry
from tests.support.stories import seal_of
from tests.support.writers import Writer, said


class Sample:
    """An owner's conversation; written entries are held once they are added."""

    def __init__(self, owner: Writer | None = None) -> None:
        """Begin with the genesis."""
        self.owner = owner or Writer(1)
        self.genesis = self.owner.genesis()
        self.held = Conversation(self.genesis.conversation)
        self.add(self.genesis)

    @property
    def id(self) -> ConversationId:
        """The conversation."""
        return self.held.id

    def at(self, *ids: EntryId) -> list[Entry]:
        """Look entries up."""
        return [self.held.log.entries[i] for i in ids]

    def add(self, *entries: Entry) -> Entry:
        """Admit entries, also as pending; return the last."""
        for entry in entries:
            self.held.admit(entry)
        return entries[-1]

    def grant(self, writer: Writer, *roles: Role) -> None:
        """Grant roles to a key."""
        for role in roles:
            parents = self.at(*self.held.log.membership_heads()) or [self.genesis]
            self.add(self.owner.write(self.id, Member(Grant(writer.public, role)), parents=parents))

    def chain(self, count: int, text: str = "word") -> list[Entry]:
        """Write a chain of messages, each following the one before; add none of them."""
        last, line = self.owner.last(self.id) or self.genesis, []
        for _ in range(count):
            last = self.owner.write(self.id, said(text), parents=[last])
            line.append(last)
        return line

    def say(self, *parents: Entry) -> Entry:
        """Add a message that follows these entries."""
        return self.add(self.owner.write(self.id, said("x"), parents=parents))

    def ask(self, host: Writer, parent: Entry) -> Entry:
        """Add a request that follows an entry."""
        body = Request(host.public, Sampling())
        return self.add(self.owner.write(self.id, body, parents=[parent]))

    def seal(self, host: Writer, request: Entry, *said_before: Entry) -> Entry:
        """Add the host's seal of a request and of the messages before it."""
        entries = tuple(entry.id for entry in (*said_before, request))
        wording = seal_of(self.held, request.id, entries, None)
        listed = [*self.at(*wording.membership_heads), *said_before]
        return self.add(host.write(self.id, wording, parents=[request], listed=listed))
