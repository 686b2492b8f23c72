"""A conversation that a suite writes, with all its members' keys. Pure.

Its log is the one that the implementation under test should hold: the pure core
says which entries are covered, what the digest is, and what a seal lists.
"""

from collections.abc import Iterable
from dataclasses import replace

from antiphon.conformance.writers import Writer, said
from replica.conversation import (
    Conversation,
    Draft,
    extend_digest,
    sealable,
    sign_draft,
    start_digest,
)
from replica.ids import ConversationId, Digest, EntryId, PublicKey, Track
from replica.log import (
    Body,
    Cancel,
    Cut,
    Entry,
    FinishReason,
    Generation,
    Grant,
    Member,
    Message,
    Request,
    Revocation,
    Role,
    Sampling,
    Seal,
    Text,
)

NO_DIGEST = Digest(bytes(32))
EPOCH = 2**63 + 1
"""An epoch that a double does not hold, nor a signed number."""
RUN = EPOCH
"""Likewise the number of a run."""


class History:
    """One conversation: an owner, and the entries it and others write, in causal order."""

    def __init__(self, seed: bytes) -> None:
        """Begin it; all keys derive from `seed`."""
        self._seed = seed
        self.owner = self.writer("owner")
        self.genesis = self.owner.genesis()
        self.id = ConversationId(self.genesis.id)
        self.held = Conversation(self.id)
        self._entries: list[Entry] = []
        self.add(self.genesis)

    def writer(self, name: str, epoch: int = EPOCH) -> Writer:
        """Return a key of this conversation's own, member or not."""
        return Writer(self._seed + name.encode(), epoch)

    def add(self, entry: Entry) -> Entry:
        """Admit an entry; return it."""
        self.held.admit(entry)
        self._entries.append(entry)
        return entry

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries in the order in which they were written."""
        return tuple(self._entries)

    @property
    def digest(self) -> Digest:
        """The digest of the entries written so far."""
        return self.held.log.digest

    @property
    def last(self) -> Entry:
        """The entry that was written last on the conversation's track, else the genesis."""
        on_track = (e for e in reversed(self._entries) if e.header.track == Track.CONVERSATION)
        return next(on_track, self.genesis)

    # --- members ----------------------------------------------------------------

    def grant(self, key: PublicKey, role: Role, by: Writer | None = None) -> Entry:
        """Grant a role."""
        return self._member(Grant(key, role), by)

    def revoke(self, key: PublicKey, *kept: Entry, by: Writer | None = None) -> Entry:
        """Revoke a key, and keep its lanes up to the entries given."""
        cuts = tuple(
            Cut(e.header.epoch, e.header.track, e.header.seq, e.id)
            for e in sorted(kept, key=lambda e: (e.header.epoch, e.header.track))
        )
        return self._member(Revocation(key, cuts), by, kept)

    def _member(
        self, change: Grant | Revocation, by: Writer | None, listed: Iterable[Entry] = ()
    ) -> Entry:
        log = self.held.log
        parents = [log.entries[i] for i in log.membership_heads()] or [self.genesis]
        author = by or self.owner
        return self.add(author.write(self.id, Member(change), parents=parents, listed=listed))

    # --- turns ------------------------------------------------------------------

    def say(
        self, text: str = "hello", by: Writer | None = None, after: Entry | None = None
    ) -> Entry:
        """Write a message behind the last entry."""
        return self.write(said(text), by, after)

    def write(self, body: Body, by: Writer | None = None, after: Entry | None = None) -> Entry:
        """Write any body behind an entry, by default the last one."""
        return self.add(self.draw(body, by, after))

    def draw(
        self,
        body: Body | None = None,
        by: Writer | None = None,
        after: Entry | None = None,
        basis: Entry | None = None,
    ) -> Entry:
        """Write an entry that this history does not hold: the caller decides when it is sent."""
        parents = [after or self.last]
        author = by or self.owner
        return author.write(self.id, body or said("drawn"), parents=parents, basis=basis)

    def ask(self, host: PublicKey, after: Entry | None = None, basis: Entry | None = None) -> Entry:
        """Write a request."""
        request = Request(host, Sampling(), output_tokens_max=16)
        return self.add(self.draw(request, after=after, basis=basis))

    def cancel(self, request: Entry) -> Entry:
        """Write a CANCEL of a request."""
        return self.write(Cancel(), after=request)

    def seal(self, request: Entry, host: Writer) -> Entry:
        """Seal a request that may be sealed now."""
        found = sealable(self.held, request.id)
        assert found is not None, "the history asks for seals of sealable requests"
        body = Seal(
            request=request.id,
            prev_seal=found.parent.id if found.parent is not None else None,
            entries=found.entries,
            profile=NO_DIGEST,
            context_digest=found.context_digest,
            render_digest=NO_DIGEST,
            tokens_per_entry=(1,) * len(found.entries),
            membership_heads=found.membership_heads,
        )
        named = [
            *body.entries,
            *body.membership_heads,
            *([body.prev_seal] if body.prev_seal else []),
        ]
        listed = [self.held.log.entries[i] for i in named]
        return self.add(host.write(self.id, body, parents=[request], listed=listed))

    def answer(self, seal: Entry, host: Writer, words: str = "Yes.", run: int = RUN) -> Entry:
        """Answer a sealed request with the tokens 1 and 2."""
        request = seal.header.parents[0]
        digest = extend_digest(start_digest(request, run), (1, 2))
        body = Generation(
            (1, 2),
            (Text(words),),
            len(words.encode()),
            FinishReason.STOP,
            draft_digest=digest,
            run=run,
        )
        return self.add(host.write(self.id, body, parents=[seal], basis=seal))

    def refuse(self, request: Entry, host: Writer) -> Entry:
        """Refuse a request: a generation without a seal."""
        body = Generation((), (), 0, FinishReason.REFUSED, finish_detail="PROFILE_UNKNOWN")
        return self.add(host.write(self.id, body, parents=[request]))

    def drafts(
        self, request: Entry, host: Writer, words: tuple[str, ...], run: int = RUN
    ) -> list[Draft]:
        """Return the signed frames of a draft, one token with its text each."""
        digest, at, frames = start_digest(request.id, run), 0, []
        for offset, word in enumerate(words):
            digest, data = extend_digest(digest, (offset + 1,)), word.encode()
            frame = Draft(
                self.id, EntryId(request.id), run, offset, (offset + 1,), at, data, digest
            )
            frames.append(sign_draft(frame, host.key))
            at += len(data)
        return frames


def forged(entry: Entry) -> Entry:
    """Return the entry with a signature that is not its author's."""
    return replace(entry, signature=bytes(64))


def void_message() -> Message:
    """Return a message without parts, which is durable and void."""
    return Message(1, ())
