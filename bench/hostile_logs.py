"""Logs as an attacker grows them: correct entries, written faster than a replica would."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.conversation import Conversation
from replica.ids import (
    CONTEXT_TAG,
    ConversationId,
    Digest,
    EntryId,
    Lane,
    PublicKey,
    Track,
    tagged_sha256,
)
from replica.log import (
    Body,
    Entry,
    Generation,
    Genesis,
    Grant,
    Header,
    Kind,
    Member,
    Message,
    Request,
    Revocation,
    Role,
    Sampling,
    Seal,
    Speaker,
    Text,
    body_digest,
    codec,
    entry_id,
    kind_of,
    public_key,
    rules_of,
    salted,
    sign,
)
from replica.log.body import Cut

ANY = Digest(bytes(32))
EMPTY = tagged_sha256(CONTEXT_TAG, b"")


def extended(digest: Digest, entries: Iterable[Entry]) -> Digest:
    """Return the digest of a context that is longer by these entries."""
    for entry in entries:
        digest = Digest(sha256(digest + entry.id + entry.header.body_digest).digest())
    return digest


def said(text: str = "x" * 40) -> Message:
    """Return a message of one text part."""
    return Message(Speaker.USER, (Text(text),))


@dataclass
class Pen:
    """One key, which writes in any epoch and after any entry of its own."""

    number: int
    last: dict[Lane, Entry] = field(default_factory=dict)
    written: int = 0

    def __post_init__(self) -> None:
        self.key = Ed25519PrivateKey.from_private_bytes(self.number.to_bytes(32, "big"))
        self.public = public_key(self.key)

    def twin(self) -> "Pen":
        """Return a pen that goes on from here by itself."""
        return Pen(self.number, dict(self.last), self.written)

    def genesis(self) -> Entry:
        """Begin a conversation."""
        content = self._content(Genesis((self.public,)))
        return self._signed(None, Lane(self.public, 1, Track.ALL), 0, None, (), None, 0,
                            Kind.GENESIS, content)  # fmt: skip

    def write(
        self,
        body: Body,
        *parents: Entry,
        epoch: int = 1,
        after: Entry | None = None,
        basis: Entry | None = None,
        listed: Iterable[Entry] = (),
        conflict: int = 0,
    ) -> Entry:
        """Write the next entry of a lane; `after` forks the lane behind an older entry."""
        kind = kind_of(body)
        lane = Lane(self.public, epoch, rules_of(kind).track or Track.CONVERSATION)
        prev = after if after is not None else self.last.get(lane)
        named = [e for e in (prev, *parents, basis, *listed) if e is not None]
        entry = self._signed(
            parents[0].conversation, lane, 0 if prev is None else prev.header.seq + 1,
            None if prev is None else prev.id, tuple(sorted({e.id for e in parents})),
            basis.id if basis is not None else None, 1 + max(e.header.lamport for e in named),
            kind, self._content(body), conflict,
        )  # fmt: skip
        self.last[lane] = entry
        return entry

    def _content(self, body: Body) -> bytes:
        self.written += 1
        return salted(self.written.to_bytes(16, "big"), codec.encode_body(body))

    def _signed(  # noqa: PLR0913, PLR0917  # a header has these fields
        self,
        conversation: ConversationId | None,
        lane: Lane,
        seq: int,
        prev: EntryId | None,
        parents: tuple[EntryId, ...],
        basis: EntryId | None,
        lamport: int,
        kind: int,
        content: bytes,
        conflict: int = 0,
    ) -> Entry:
        header = Header(
            conversation, lane.author, lane.epoch, lane.track, seq, prev, parents, basis, lamport,
            kind, False, body_digest(content), len(content), 1_700_000_000_000, conflict,
        )  # fmt: skip
        data = codec.encode_header(header)
        return Entry(data, sign(data, self.key), content, entry_id(data), header)


@dataclass
class Talk:
    """A conversation of an owner with members, as the store of its hub holds it."""

    owner: Pen = field(default_factory=lambda: Pen(1))
    entries: list[Entry] = field(default_factory=list)
    digests: dict[EntryId | None, Digest] = field(default_factory=dict)
    """The context digest of each seal."""

    def __post_init__(self) -> None:
        self.genesis = self.owner.genesis()
        self.id = ConversationId(self.genesis.id)
        self.entries.append(self.genesis)
        self.top = self.granted = self.genesis

    def member(self, number: int, role: Role) -> Pen:
        """Grant a role to a new key."""
        pen = Pen(number)
        self.granted = self.owner.write(Member(Grant(pen.public, role)), self.genesis)
        self.entries.append(self.granted)
        return pen

    def twin(self) -> "Talk":
        """Return a talk that goes on from here by itself; entries do not change."""
        other = copy.copy(self)
        other.owner, other.entries = self.owner.twin(), list(self.entries)
        other.digests = dict(self.digests)
        return other

    def messages(self, pen: Pen, count: int) -> None:
        """Let a member write a chain of messages."""
        for _ in range(count):
            self.top = pen.write(said(), self.top)
            self.entries.append(self.top)

    def forked(self, pen: Pen, count: int) -> None:
        """Let a member write one lane position many times."""
        first = pen.write(said(), self.genesis, epoch=7)
        self.entries.append(first)
        self.entries += [
            pen.write(said(), self.genesis, epoch=7, after=first) for _ in range(count)
        ]

    def lanes(self, pen: Pen, count: int, body: Body) -> None:
        """Let a member write one entry in each of many epochs."""
        self.entries += [pen.write(body, self.genesis, epoch=100 + i) for i in range(count)]

    def revocations(self, key: PublicKey, at: Entry, count: int) -> None:
        """Revoke a key many times, with a cut at one entry each."""
        h = at.header
        cut = Cut(h.epoch, h.track, h.seq, at.id)
        grants = [e for e in self.entries if e.header.track == Track.MEMBERSHIP][-1]
        for _ in range(count):
            body = Member(Revocation(key, (cut,)))
            self.entries.append(self.owner.write(body, grants, listed=[at]))

    def request(self, host: Pen, basis: Entry | None = None, conflict: int = 0) -> Entry:
        """Ask the host for an answer at the end of the messages."""
        body = Request(host.public, Sampling())
        entry = self.owner.write(body, self.top, basis=basis, conflict=conflict)
        self.entries.append(entry)
        return entry

    def seal(
        self, host: Pen, request: Entry, listed: Sequence[Entry], prev: Entry | None = None
    ) -> Entry:
        """Let the host seal a request; the list is the caller's, and may be wrong."""
        heads = self.granted
        ids = tuple(e.id for e in listed)
        digest = extended(self.digests.get(prev.id if prev else None, EMPTY), listed)
        before = prev.id if prev is not None else None
        body = Seal(request.id, before, ids, ANY, digest, ANY, (1,) * len(ids), (heads.id,))
        named = [*listed, heads, *([prev] if prev is not None else [])]
        entry = host.write(body, request, listed=named)
        self.digests[entry.id] = digest
        self.entries.append(entry)
        return entry

    def answer(self, host: Pen, seal: Entry) -> Entry:
        """Let the host answer."""
        body = Generation((1,), (), 0, 1)
        self.top = host.write(body, seal, basis=seal)
        self.entries.append(self.top)
        return self.top

    def restored(self) -> Conversation:
        """Return the conversation as a hub restores it from its store."""
        return Conversation.restore(self.id, self.entries)
