"""Keys, hand-encoded messages and named entries, the parts of all vector files.

Nothing of the project is imported, so this is a second implementation of the
encoding in spec/02-entry.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

GENESIS, MEMBER, MESSAGE, TOOLS, REQUEST, SEAL, GENERATION, CANCEL = range(1, 9)
DOCUMENT, JOIN = 12, 13
ALL, CONVERSATION, DOCUMENTS, MEMBERSHIP = range(4)
READER, WRITER, OWNER, HOST = range(1, 5)
QUEUE, FORK = 0, 1

TRACK_OF_KIND = {GENESIS: ALL, MEMBER: MEMBERSHIP, DOCUMENT: DOCUMENTS}


class Fixed(int):
    """A number encoded as fixed64."""


Value = int | Fixed | bytes | list[bytes]


def varint(value: int) -> bytes:
    """Encode a minimal varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def one_field(number: int, value: int | bytes) -> bytes:
    """Encode one occurrence of a field, even a default."""
    if isinstance(value, Fixed):
        return varint(number << 3 | 1) + value.to_bytes(8, "little")
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(fields: dict[int, Value]) -> bytes:
    """Encode a message in the strict subset: fields ascending, without defaults."""
    out = []
    for number in sorted(fields):
        value = fields[number]
        if isinstance(value, list):
            out += [one_field(number, item) for item in value]
        elif value:
            out.append(one_field(number, value))
    return b"".join(out)


def pae(tag: str, data: bytes) -> bytes:
    """Return the tagged pre-image."""
    name = tag.encode()
    return len(name).to_bytes(8, "little") + name + len(data).to_bytes(8, "little") + data


def sha256(data: bytes) -> bytes:
    """Hash plain bytes."""
    return hashlib.sha256(data).digest()


@dataclass(frozen=True)
class Key:
    """A key pair derived from its name."""

    name: str

    @property
    def seed(self) -> bytes:
        """The 32-byte private key."""
        return sha256(b"antiphon vector key " + self.name.encode())

    @property
    def private(self) -> Ed25519PrivateKey:
        """The private key, ready to sign."""
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @property
    def public(self) -> bytes:
        """The public key, 32 B."""
        return self.private.public_key().public_bytes_raw()


# --- bodies ------------------------------------------------------------------


def genesis(owners: Iterable[Key]) -> bytes:
    """Encode a Genesis."""
    return message({1: [owner.public for owner in owners]})


def grant(key: Key, role: int) -> bytes:
    """Encode a Member that grants."""
    return one_field(1, message({1: key.public, 2: role}))


def said(words: str) -> bytes:
    """Encode a Message of a user with one text part."""
    return message({1: 2, 2: [one_field(1, message({1: words.encode()}))]})


def request(host: Key) -> bytes:
    """Encode a greedy Request."""
    return message({1: host.public}) + one_field(3, b"")


def generation(words: str) -> bytes:
    """Encode a Generation that stopped, with one text part."""
    return message({2: [one_field(1, message({1: words.encode()}))], 3: len(words), 4: 1})


# --- entries -----------------------------------------------------------------


@dataclass(frozen=True)
class Header:
    """Header fields with their meaning; `encode` is spec/02-entry §1."""

    author: bytes
    kind: int
    body: bytes
    conversation: bytes = b""
    epoch: int = 1
    track: int = ALL
    seq: int = 0
    prev: bytes = b""
    parents: tuple[bytes, ...] = ()
    basis: bytes = b""
    lamport: int = 0
    critical: int = 0
    create_time_ms: int = 1_700_000_000_000
    conflict: int = QUEUE

    def fields(self) -> dict[int, Value]:
        """Return the fields by number."""
        return {
            1: self.conversation,
            2: self.author,
            3: Fixed(self.epoch),
            4: self.track,
            5: self.seq,
            6: self.prev,
            7: sorted(self.parents),
            8: self.basis,
            9: self.lamport,
            10: self.kind,
            11: self.critical,
            12: sha256(self.body),
            13: len(self.body),
            14: self.create_time_ms,
            15: self.conflict,
        }

    def encode(self) -> bytes:
        """Return the header bytes."""
        return message(self.fields())


@dataclass(frozen=True)
class Built:
    """One entry, with the header that later ones refer to."""

    header_bytes: bytes
    signature: bytes
    body: bytes | None
    header: Header

    @property
    def id(self) -> bytes:
        """The entry's id."""
        return sha256(pae("antiphon/v1/entry", self.header_bytes))

    def as_json(self) -> dict[str, str | None]:
        """Return the three byte strings and the id as hex."""
        return {
            "id": self.id.hex(),
            "header": self.header_bytes.hex(),
            "signature": self.signature.hex(),
            "body": None if self.body is None else self.body.hex(),
        }


def signed(header: Header, key: Key, data: bytes | None = None) -> Built:
    """Sign a header, or `data` in place of its encoding."""
    data = header.encode() if data is None else data
    signature = key.private.sign(pae("antiphon/v1/signature", data))
    return Built(data, signature, header.body, header)


@dataclass
class NamedLog:
    """Entries of one conversation by name, with correct lanes and lamports by default."""

    owners: tuple[Key, ...]
    entries: dict[str, Built] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Write the genesis."""
        self.keys = {owner.name: owner for owner in self.owners}
        body = self._salted("genesis", genesis(self.owners))
        header = Header(self.owners[0].public, GENESIS, body)
        self.entries["genesis"] = signed(header, self.owners[0])

    @property
    def conversation(self) -> bytes:
        """The conversation's id."""
        return self.entries["genesis"].id

    def _salted(self, name: str, content: bytes) -> bytes:
        return sha256(b"antiphon vector salt " + name.encode())[:16] + content

    def header(
        self,
        name: str,
        by: Key,
        kind: int,
        content: bytes,
        *,
        parents: Iterable[str] = ("genesis",),
        basis: str | None = None,
        prev: str | None = "last",
        listed: Iterable[str] = (),
        epoch: int = 1,
        track: int | None = None,
        conflict: int = QUEUE,
        critical: bool = False,
    ) -> Header:
        """Return a correct header; `prev` is an entry's name, or "last" for the lane's last."""
        self.keys[by.name] = by
        track = TRACK_OF_KIND.get(kind, CONVERSATION) if track is None else track
        before = self._last(by, epoch, track) if prev == "last" else self.entries.get(prev or "")
        parent_entries = [self.entries[p] for p in parents]
        named = [*parent_entries, *(self.entries[i] for i in listed)]
        named += [e for e in (before, self.entries.get(basis or "")) if e is not None]
        return Header(
            by.public,
            kind,
            self._salted(name, content),
            conversation=self.conversation,
            epoch=epoch,
            track=track,
            seq=before.header.seq + 1 if before else 0,
            prev=before.id if before else b"",
            parents=tuple(e.id for e in parent_entries),
            basis=self.entries[basis].id if basis else b"",
            lamport=1 + max(e.header.lamport for e in named),
            conflict=conflict,
            critical=critical,
        )

    def _last(self, by: Key, epoch: int, track: int) -> Built | None:
        lane = (by.public, epoch, track)
        written = [
            e
            for e in self.entries.values()
            if (e.header.author, e.header.epoch, e.header.track) == lane
        ]
        return written[-1] if written else None

    def write(self, name: str, by: Key, kind: int, content: bytes, **fields: object) -> Built:
        """Write a correct entry and store it under `name`."""
        assert name not in self.entries, name
        header = self.header(name, by, kind, content, **fields)  # type: ignore[arg-type]
        return self.keep(name, signed(header, by))

    def keep(self, name: str, entry: Built) -> Built:
        """Store an entry under `name`."""
        self.entries[name] = entry
        return entry

    def changed(self, name: str, by: Key, **fields: object) -> Built:
        """Return the entry `name` with header fields changed, signed again."""
        header = replace(self.entries[name].header, **fields)  # type: ignore[arg-type]
        return signed(header, by)

    def grant(self, name: str, by: Key, key: Key, role: int, **fields: object) -> Built:
        """Write a grant; it follows the membership entries named as parents."""
        self.keys[key.name] = key
        return self.write(name, by, MEMBER, grant(key, role), **fields)

    def revoke(
        self,
        name: str,
        by: Key,
        key: Key,
        cuts: Iterable[str],
        *,
        seq_off: int = 0,
        epoch_off: int = 0,
        track_off: int = 0,
        **fields: object,
    ) -> Built:
        """Write a revocation whose cuts name the last valid entries; an offset makes them wrong."""
        cut_names = list(cuts)
        raw = []
        for cut in (self.entries[c] for c in cut_names):
            epoch = Fixed(cut.header.epoch + epoch_off)
            lane = {1: epoch, 2: cut.header.track + track_off, 3: cut.header.seq + seq_off}
            raw.append(message({**lane, 4: cut.id}))
        content = one_field(2, message({1: key.public, 2: raw}))
        return self.write(name, by, MEMBER, content, listed=cut_names, **fields)

    def context_digest(self, names: Iterable[str]) -> bytes:
        """Return the digest of the context of these entries."""
        digest = sha256(pae("antiphon/v1/context", b""))
        for entry in (self.entries[n] for n in names):
            digest = sha256(digest + entry.id + sha256(entry.header.body))
        return digest

    def digest(self, names: Iterable[str]) -> bytes:
        """Return the digest of the lane heads of these entries."""
        held = [self.entries[n] for n in names]
        followed = {e.header.prev for e in held}
        heads = sorted(
            (e.header.author, e.header.epoch, e.header.track, e.header.seq, e.id)
            for e in held
            if e.id not in followed
        )
        return sha256(pae("antiphon/v1/digest", b"".join(head_bytes(*h) for h in heads)))

    def as_json(self) -> dict[str, object]:
        """Return keys and entries for a vector file."""
        return {
            "conversation": self.conversation.hex(),
            "keys": {n: k.public.hex() for n, k in sorted(self.keys.items())},
            "entries": {n: e.as_json() for n, e in self.entries.items()},
        }


def head_bytes(author: bytes, epoch: int, track: int, seq: int, entry_id: bytes) -> bytes:
    """Encode one lane head for the digest, 81 B."""
    return (
        author
        + epoch.to_bytes(8, "little")
        + track.to_bytes(1, "little")
        + seq.to_bytes(8, "little")
        + entry_id
    )
