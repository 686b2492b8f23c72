"""Recorded conversations: entries by label, keys by name, and steps. Pure."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.conversation import Author, Conversation
from replica.ids import SALT_BYTES, ConversationId, Digest, EntryId, PublicKey
from replica.log import (
    Body,
    Conflict,
    Entry,
    Genesis,
    Grant,
    Member,
    Message,
    Role,
    Speaker,
    Text,
    codec,
    entry_id,
    public_key,
)

Json = dict[str, Any]
FIRST_TIME_MS = 1_700_000_000_000


class Recording:
    """One recorded conversation, as read from its file."""

    def __init__(self, content: Json) -> None:
        """Decode entries and keys."""
        self.content = content
        self.name: str = content["name"]
        self.title: str = content["title"]
        self.requirements: tuple[str, ...] = tuple(content["requirements"])
        self.conversation = ConversationId(bytes.fromhex(content["conversation"]))
        self.steps: list[Json] = content["steps"]
        self.entries: dict[str, Entry] = {
            label: _entry(raw) for label, raw in content["entries"].items()
        }
        self._labels: dict[EntryId, str] = {
            entry.id: label for label, entry in self.entries.items()
        }

    def key(self, name: str) -> Ed25519PrivateKey:
        """Return the private key of a member."""
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.content["keys"][name]))

    def label(self, entry: EntryId) -> str:
        """Return the label of an entry, else the first digits of its id."""
        return self._labels.get(entry, entry.hex()[:12])

    def held(self, labels: Iterable[str]) -> Conversation:
        """Return a replica's conversation with these entries."""
        return held_of(self.conversation, [self.entries[label] for label in labels])


def held_of(conversation: ConversationId, entries: Iterable[Entry]) -> Conversation:
    """Return a conversation with these entries, which are verified."""
    held = Conversation(conversation)
    for entry in entries:
        held.admit(entry)
    return held


def _entry(raw: Json) -> Entry:
    header = bytes.fromhex(raw["header"])
    body = bytes.fromhex(raw["body"])
    decoded = codec.decode_header(header)
    return Entry(header, bytes.fromhex(raw["signature"]), body, entry_id(header), decoded)


class Recorder:
    """Writes one recording; the same seed and calls give the same bytes."""

    def __init__(self, seed: int, name: str) -> None:
        """Start without entries."""
        self._seed = f"{seed} {name}"
        self.name = name
        self.entries: dict[str, Entry] = {}
        self.steps: list[Json] = []
        self._keys: dict[str, Ed25519PrivateKey] = {}

    @property
    def conversation(self) -> ConversationId:
        """The conversation's id."""
        return ConversationId(self.entries["genesis"].id)

    def key(self, name: str) -> Ed25519PrivateKey:
        """Return the key of a name."""
        if name not in self._keys:
            self._keys[name] = Ed25519PrivateKey.from_private_bytes(self._hash(f"key {name}"))
        return self._keys[name]

    def public(self, name: str) -> PublicKey:
        """Return the public key of a name."""
        return public_key(self.key(name))

    def begin(self, **roles: Role) -> list[str]:
        """Let ada begin the conversation and grant roles; return the labels."""
        author = Author(self.key("ada"), 1)
        body = Genesis((self.public("ada"),))
        self.entries["genesis"] = author.genesis(body, salt=self._salt("genesis"), time_ms=self._ms)
        held = ["genesis"]
        for name, role in roles.items():
            grant = Member(Grant(self.public(name), role))
            held.append(self.write(f"grant-{name}", "ada", grant, held, [held[-1]]))
        return held

    def say(self, label: str, author: str, held: Sequence[str], behind: str, epoch: int = 1) -> str:
        """Write a message behind one entry."""
        body = Message(Speaker.USER, (Text(f"{label}."),))
        return self.write(label, author, body, held, [behind], epoch=epoch)

    def write(
        self,
        label: str,
        author: str,
        body: Body,
        held: Iterable[str],
        parents: Sequence[str],
        *,
        basis: str | None = None,
        conflict: Conflict = Conflict.QUEUE,
        epoch: int = 1,
    ) -> str:
        """Write an entry on a device that holds these entries; return its label."""
        entry = Author(self.key(author), epoch).write(
            self.held(held),
            body,
            parents=tuple(self.entries[one].id for one in parents),
            basis=self.entries[basis].id if basis is not None else None,
            conflict=conflict,
            salt=self._salt(label),
            time_ms=self._ms,
        )
        self.entries[label] = entry
        return label

    def held(self, labels: Iterable[str]) -> Conversation:
        """Return a replica's conversation with these entries."""
        return held_of(self.conversation, [self.entries[label] for label in labels])

    def digest(self, labels: Iterable[str]) -> Digest:
        """Return the digest of a log with these entries."""
        return self.held(labels).log.digest

    def content(self, title: str, requirements: Sequence[str]) -> Json:
        """Return the recording as the content of its file."""
        return {
            "name": self.name,
            "title": title,
            "requirements": list(requirements),
            "conversation": self.conversation.hex(),
            "keys": {name: key.private_bytes_raw().hex() for name, key in self._keys.items()},
            "entries": {label: _raw(entry) for label, entry in self.entries.items()},
            "steps": self.steps,
        }

    @property
    def _ms(self) -> int:
        return FIRST_TIME_MS + 1_000 * len(self.entries)

    def _hash(self, text: str) -> bytes:
        return hashlib.sha256(f"{self._seed} {text}".encode()).digest()

    def _salt(self, label: str) -> bytes:
        return self._hash(f"salt {label}")[:SALT_BYTES]


def _raw(entry: Entry) -> dict[str, str]:
    body = entry.body or b""
    return {
        "header": entry.header_bytes.hex(),
        "signature": entry.signature.hex(),
        "body": body.hex(),
    }
