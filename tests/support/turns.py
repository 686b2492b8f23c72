"""A conversation of two writers and a host, grown entry by entry, for tests of pure rules."""

from collections.abc import Sequence

from replica.conversation.conversation import Conversation
from replica.conversation.keys import call_digest, key_digest
from replica.conversation.next_seal import sealable
from replica.ids import EntryId, PublicKey, Track
from replica.log.body import (
    Body,
    CallKey,
    FinishReason,
    Generation,
    Grant,
    Member,
    Message,
    Part,
    Request,
    Revocation,
    Role,
    Sampling,
    Speaker,
    Text,
)
from replica.log.entry import Entry
from tests.support.stories import seal_of
from tests.support.writers import Writer


def key_of(author: PublicKey, text: str, words: str, attempt: int = 0) -> CallKey:
    """Return the key of a call."""
    return CallKey(key_digest(author, text), call_digest((Text(words),)), attempt)


class Turns:
    """An owner, a second writer and a host; each method admits what it writes."""

    def __init__(self) -> None:
        self.owner, self.writer, self.host = Writer(1), Writer(2), Writer(6)
        genesis = self.owner.genesis()
        self.genesis = genesis
        self.held = Conversation(genesis.conversation)
        self.held.admit(genesis)
        self._member: Entry = genesis
        self.change(Grant(self.writer.public, Role.WRITER))
        self.change(Grant(self.host.public, Role.HOST))

    def change(self, change: Grant | Revocation, *listed: Entry) -> Entry:
        """Let the owner change the membership; `listed` are the entries that it lists."""
        self._member = self.add(self.owner, Member(change), self._member, listed=listed)
        return self._member

    def add(self, author: Writer, body: Body, *parents: Entry | EntryId, **more) -> Entry:
        """Write an entry behind `parents`, and admit it."""
        found = [self.entry(parent) for parent in parents]
        entry = author.write(self.held.id, body, parents=found, **more)
        self.held.admit(entry)
        assert entry.id in self.held.log.entries
        return entry

    def entry(self, one: Entry | EntryId) -> Entry:
        """Look an entry up."""
        return one if isinstance(one, Entry) else self.held.log.entries[one]

    def say(self, author: Writer, text: str, *parents: Entry, key: CallKey | None = None) -> Entry:
        """Write a message of a user."""
        return self.add(author, Message(Speaker.USER, (Text(text),), key), *parents)

    def ask(
        self,
        author: Writer,
        *parents: Entry,
        key: CallKey | None = None,
        basis: Entry | None = None,
        conflict: int = 0,
    ) -> Entry:
        """Write a request."""
        body = Request(self.host.public, Sampling(), key=key)
        return self.add(author, body, *parents, basis=basis, conflict=conflict)

    def answer(
        self,
        request: Entry,
        *parts: Part,
        reason: int = FinishReason.STOP,
    ) -> Entry:
        """Let the host seal a request and answer it."""
        seal = self.seal(request)
        return self.add(self.host, Generation((1,), parts, 0, reason), seal, basis=seal)

    def seal(self, request: Entry) -> Entry:
        """Let the host seal a request."""
        ready = sealable(self.held, request.id)
        assert ready is not None
        parent = ready.parent.id if ready.parent is not None else None
        body = seal_of(self.held, request.id, ready.entries, parent)
        listed = [self.held.log.entries[i] for i in (*ready.entries, *ready.membership_heads)]
        if parent is not None:
            listed.append(self.held.log.entries[parent])
        basis = self.held.log.entries[parent] if parent is not None else None
        return self.add(self.host, body, request, basis=basis, listed=listed)

    def last(self, author: Writer, track: int = Track.CONVERSATION) -> Entry:
        """Return an author's last entry."""
        last = author.last(self.held.id, track)
        assert last is not None
        return last


def ids(entries: Sequence[Entry]) -> tuple[EntryId, ...]:
    """Return the ids of entries."""
    return tuple(entry.id for entry in entries)
