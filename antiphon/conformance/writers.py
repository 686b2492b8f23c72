"""A deterministic author of correct, signed entries. Pure."""

import hashlib
from collections.abc import Iterable, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.ids import SALT_BYTES, ConversationId, Lane, PublicKey, Track
from replica.log import (
    Body,
    Entry,
    Genesis,
    Header,
    Kind,
    Message,
    Sampling,
    Speaker,
    Text,
    body_digest,
    codec,
    entry_id,
    kind_of,
    listed_ids,
    public_key,
    rules_of,
    salted,
    sign,
)


def said(text: str, speaker: int = Speaker.USER) -> Message:
    """Return a message of one text part."""
    return Message(speaker, (Text(text),))


class Writer:
    """One key in one epoch; the same seed and calls give the same bytes.

    It remembers the last entry of each of its lanes, so `seq` and `prev` are
    right as long as every entry of the key and epoch is written here.
    """

    def __init__(self, seed: int | bytes, epoch: int = 1) -> None:
        """Derive the key from `seed`."""
        data = seed if isinstance(seed, bytes) else f"writer {seed}".encode()
        self._seed = hashlib.sha256(data).digest()
        self.key = Ed25519PrivateKey.from_private_bytes(self._seed)
        self.public = public_key(self.key)
        self.epoch = epoch
        self._last: dict[tuple[ConversationId, Lane], Entry] = {}
        self._written = 0

    @classmethod
    def of_key(cls, private_key: bytes, epoch: int = 1) -> "Writer":
        """Return the writer of a private key of 32 bytes. Raises ValueError for another width."""
        writer = cls(private_key, epoch)
        writer.key = Ed25519PrivateKey.from_private_bytes(private_key)
        writer.public = public_key(writer.key)
        return writer

    def restored(self) -> "Writer":
        """Return a copy of this writer's present state, as from a restored backup."""
        twin = Writer(b"", epoch=self.epoch)
        twin._seed, twin.key, twin.public = self._seed, self.key, self.public
        twin._last, twin._written = dict(self._last), self._written
        return twin

    def genesis(
        self, owners: Sequence[PublicKey] | None = None, sampling: Sampling | None = None
    ) -> Entry:
        """Begin a conversation; the writer is its only owner by default."""
        body = self._salted(Genesis(tuple(owners or (self.public,)), sampling))
        return self._signed(self._header(Kind.GENESIS, Track.ALL, body), body)

    def write(
        self,
        conversation: ConversationId,
        body: Body,
        *,
        parents: Sequence[Entry],
        basis: Entry | None = None,
        conflict: int = 0,
        critical: bool = False,
        kind: int | None = None,
        track: int | None = None,
        listed: Iterable[Entry] = (),
    ) -> Entry:
        """Append to the lane of the body's track.

        A JOIN or unknown kind stands on the track of its first parent, the
        conversation's if that is the genesis; `track` overrides. Among `listed`
        are the entries a seal or a revocation lists; lamport exceeds theirs.
        """
        kind = kind_of(body) if kind is None else kind
        if track is None:
            own = rules_of(kind).track
            track = (parents[0].header.track if own is None else own) or Track.CONVERSATION
        prev = self.last(conversation, track)
        named = [entry for entry in (prev, *parents, basis) if entry is not None]
        by_id = {entry.id: entry for entry in (*listed, *named)}
        assert by_id.keys() >= set(listed_ids(body)), "give the entries the body lists as `listed`"
        named += [by_id[entry_id] for entry_id in listed_ids(body)]
        data = self._salted(body)
        header = self._header(
            kind,
            track,
            data,
            conversation=conversation,
            prev=prev,
            parents=parents,
            basis=basis,
            lamport=1 + max(entry.header.lamport for entry in named),
            critical=critical,
            conflict=conflict,
        )
        entry = self._signed(header, data)
        self._last[conversation, entry.header.lane] = entry
        return entry

    def last(self, conversation: ConversationId, track: int = Track.CONVERSATION) -> Entry | None:
        """Return the last entry of this writer's lane on `track`."""
        return self._last.get((conversation, Lane(self.public, self.epoch, track)))

    def _salted(self, body: Body) -> bytes:
        self._written += 1
        salt = hashlib.sha256(self._seed + self._written.to_bytes(8, "little")).digest()
        return salted(salt[:SALT_BYTES], codec.encode_body(body))

    def _header(
        self,
        kind: int,
        track: int,
        body: bytes,
        *,
        conversation: ConversationId | None = None,
        prev: Entry | None = None,
        parents: Sequence[Entry] = (),
        basis: Entry | None = None,
        lamport: int = 0,
        critical: bool = False,
        conflict: int = 0,
    ) -> Header:
        return Header(
            conversation=conversation,
            author=self.public,
            epoch=self.epoch,
            track=track,
            seq=0 if prev is None else prev.header.seq + 1,
            prev=None if prev is None else prev.id,
            parents=tuple(sorted({parent.id for parent in parents})),
            basis=None if basis is None else basis.id,
            lamport=lamport,
            kind=kind,
            critical=critical,
            body_digest=body_digest(body),
            body_bytes=len(body),
            create_time_ms=1_700_000_000_000 + self._written,
            conflict=conflict,
        )

    def _signed(self, header: Header, body: bytes) -> Entry:
        data = codec.encode_header(header)
        return Entry(data, sign(data, self.key), body, entry_id(data), codec.decode_header(data))
