"""One small data folder of each kind: of a replica, a hub, a model host, and a killed replica."""

import asyncio
import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from model_host.io.checkpoint_files import Checkpoints
from model_host.io.journal import Journals
from model_host.journal_records import JournalHead
from model_host.sampler_state import Choice
from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.io.blobs import Blobs
from replica.io.hub_calls import pin
from replica.io.keys import load_or_create, load_or_create_secret
from replica.io.store import Store
from replica.log.entry import Entry, public_key
from tests.model_host.kv.plain_pages import filled
from tests.support.stories import Story
from tests.support.writers import Writer, said

KINDS = ("client", "hub", "host", "killed")
ADDRESS = "127.0.0.1:7411"
HUB, DELETED = Writer(98).public, ConversationId(b"d" * 32)
BLOB = b"a blob of some bytes" * 9
BLOB_DIGEST = Digest(hashlib.sha256(BLOB).digest())
CURRENT = "cli current"
HEAD = JournalHead(EntryId(b"r" * 32), EntryId(b"s" * 32), 7, Digest(b"p" * 32), Digest(b"c" * 32))
TOKENS = [Choice(number) for number in (5, 70_000, 0, 3)]
NAMESPACE, IDS = b"n" * 32, list(range(1000, 1100))
STEPS = 14


@dataclass(frozen=True, slots=True)
class Truth:
    """What a folder held before it was damaged."""

    kind: str
    public: PublicKey
    entries: dict[ConversationId, dict[EntryId, Entry]]

    @property
    def ids(self) -> set[EntryId]:
        return {entry_id for held in self.entries.values() for entry_id in held}


def conversations() -> list[list[Entry]]:
    """Return a conversation with entries of all kinds, and a short one with a long message."""
    story = Story(3)
    story.grow(STEPS)
    writer = Writer(5)
    genesis = writer.genesis()
    long = writer.write(genesis.conversation, said("y" * 6_000), parents=[genesis])
    return [sorted(story.entries, key=lambda entry: entry.order_key), [genesis, long]]


async def build(folder: Path, kind: str) -> Truth:
    """Make the folder of a stopped process."""
    key = load_or_create(folder / "identity.key")
    logs = conversations()
    async with await Store.open(folder / "log" / "log.db") as store:
        for log in logs:
            for at in range(0, len(log), 8):
                await store.append(log[at : at + 8])
        if kind == "hub":
            await store.tombstones.put([DELETED])
            await store.delete(DELETED, finishes=True)
        else:
            await _fill_replica(store, logs)
        if kind == "killed":
            copy = folder.with_name("killed")
            await asyncio.to_thread(shutil.copytree, folder, copy)
    if kind == "killed":
        await asyncio.to_thread(shutil.rmtree, folder)
        copy.rename(folder)
    if kind == "hub":
        await _fill_hub(folder, logs[0][0].conversation)
    if kind == "host":
        _fill_host(folder)
    held = {log[0].conversation: {entry.id: entry for entry in log} for log in logs}
    return Truth(kind, _public(key), held)


def _public(key: Ed25519PrivateKey) -> PublicKey:
    return public_key(key)


async def _fill_replica(store: Store, logs: list[list[Entry]]) -> None:
    await pin(store, ADDRESS, HUB)
    await store.put_meta(CURRENT, logs[0][0].conversation)
    for log in logs:
        positions = {entry.header.lane: entry.position for entry in log}
        store.save_acks(log[0].conversation, HUB, positions.values(), 1_700_000_000_000)


async def _fill_hub(folder: Path, conversation: ConversationId) -> None:
    load_or_create_secret(folder / "ticket.secret")
    blobs = Blobs(folder / "blobs")
    async with await blobs.open_write(conversation, BLOB_DIGEST, len(BLOB), 0) as writer:
        await writer.write(BLOB)


def _fill_host(folder: Path) -> None:
    for name in ("ticket", "salt"):
        load_or_create_secret(folder / f"{name}.secret")
    journal = Journals(folder / "journal").create(HEAD)
    journal.append(TOKENS)
    journal.close()
    checkpoints_of(folder).save(b"a", NAMESPACE, b"s" * 32, b"", IDS, filled(len(IDS)))


def checkpoints_of(folder: Path) -> Checkpoints:
    """Open the checkpoints of a host's folder."""
    secret = load_or_create_secret(folder / "checkpoint.secret")
    return Checkpoints(folder / "derived" / "checkpoints", mac_key=secret, budget_bytes=1 << 24)
