"""One small data folder of each kind: of a replica, a hub, a model host.

Besides, one of a killed replica, and one of a replica that was healed: bad rows of its log are
in quarantine, and it has received the entries again.
"""

import asyncio
import hashlib
import json
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from model_host.generation import JournalHead
from model_host.io.files.checkpoint_files import Checkpoints
from model_host.io.files.journal import Journals
from model_host.io.files.key_ring import KeyRing
from model_host.sampling import Choice
from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.io import keys, rpc
from replica.io.blobs.blobs import Blobs
from replica.io.blobs.expiring_blobs import ExpiringBlobs
from replica.io.calls.hub_calls import pin
from replica.io.conversations.joining import save_hub
from replica.io.files.certificate import Certificate, CertificateFile
from replica.io.files.keys import load_or_create, load_or_create_secret
from replica.io.store.folder_use import FolderUse, take_folder
from replica.io.store.store import Store
from replica.log.entry import Entry, public_key
from syncd.bounds.mailboxes import Mailboxes
from tests.model_host.kv.plain_pages import filled
from tests.support.stories import Story
from tests.support.writers import Writer, said

KINDS = ("client", "hub", "host", "killed", "healed")
USES = {"hub": FolderUse.HUB, "host": FolderUse.HOST}
ADDRESS = "127.0.0.1:7411"
HUB, OTHER_HUBS = Writer(98).public, (Writer(97).public, Writer(96).public)
NAMES = {HUB: "the hub"}
CERTIFICATE = "certificate.pem"
BLOB = b"a blob of some bytes" * 9
BLOB_DIGEST = Digest(hashlib.sha256(BLOB).digest())
CURRENT, PETNAMES, LATE = "cli current", "petnames", "late"
MAILBOXES, MAILBOX, PASSPHRASE = "mailboxes 0", b"m" * 32, "of the backup"
HEAD = JournalHead(EntryId(b"r" * 32), EntryId(b"s" * 32), 7, Digest(b"p" * 32), Digest(b"c" * 32))
TOKENS = [Choice(number) for number in (5, 70_000, 0, 3)]
NAMESPACE, IDS = b"n" * 32, list(range(1000, 1100))
STEPS = {"client": 14, "hub": 2, "host": 0, "killed": 0, "healed": 0}
LONG = "y" * 4_100
"""A message that overflows a page."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What a folder held before it was damaged."""

    kind: str
    public: PublicKey
    backup: bytes
    """Of its key, under PASSPHRASE."""
    entries: dict[ConversationId, dict[EntryId, Entry]]
    certificate: Certificate | None
    """Of a hub."""

    @property
    def use(self) -> FolderUse:
        """The program that has the folder."""
        return USES.get(self.kind, FolderUse.REPLICA)


def conversations(kind: str) -> list[list[Entry]]:
    """Return a conversation of a story, and a short one, with an overflowing message in some.

    All kinds of entries are in the client's log.
    """
    story = Story(3)
    story.grow(STEPS[kind])
    short = _short(5, LONG if kind in ("client", "hub") else "y")
    return [sorted(story.entries, key=lambda entry: entry.order_key), short]


def _short(number: int, words: str) -> list[Entry]:
    writer = Writer(number)
    genesis = writer.genesis()
    return [genesis, writer.write(genesis.conversation, said(words), parents=[genesis])]


def deleted() -> list[Entry]:
    """Return a conversation that was deleted, whose pages are free."""
    return _short(9, LONG)


def truth_of(folder: Path, kind: str) -> Truth:
    """Return what the folder that `build` made holds."""
    path = folder / "identity.key"
    held = {log[0].conversation: {entry.id: entry for entry in log} for log in conversations(kind)}
    certificate = CertificateFile(folder / CERTIFICATE).current if kind == "hub" else None
    backup = keys.backup(path, PASSPHRASE)
    return Truth(kind, public_key(load_or_create(path)), backup, held, certificate)


async def build(folder: Path, kind: str) -> Truth:
    """Make the folder of a stopped process."""
    await take_folder(folder, USES.get(kind, FolderUse.REPLICA))
    load_or_create(folder / "identity.key")
    logs = conversations(kind)
    late = logs[0].pop()
    path = folder / "log" / "log.db"
    async with await Store.open(path) as store:
        await _fill_log(store, kind, logs)
    async with await Store.open(path) as store:
        # A killed replica has these in its WAL alone.
        await store.put_meta(LATE, b"")
        await store.append([late])
        if kind == "killed":
            copy = folder.with_name("killed folder")
            await asyncio.to_thread(shutil.copytree, folder, copy)
    if kind == "killed":
        await asyncio.to_thread(shutil.rmtree, folder)
        copy.rename(folder)
    if kind == "healed":
        await _heal(path, late, logs[1][-1], logs[1][0])
    if kind == "hub":
        await _fill_hub(folder)
    elif kind == "host":
        _fill_host(folder)
    else:
        save_hub(folder, ADDRESS)
    return truth_of(folder, kind)


async def _fill_log(store: Store, kind: str, logs: list[list[Entry]]) -> None:
    gone = deleted()
    for log in [*logs, gone]:
        for at in range(0, len(log), 8):
            await store.append(log[at : at + 8])
    if kind == "hub":
        await store.tombstones.put([gone[0].conversation])
        await store.bringers.put({gone[0].conversation: gone[0].header.author})
        await store.put_meta(MAILBOXES, mailboxes())
    else:
        await _fill_replica(store, logs)
    await store.delete(gone[0].conversation, finishes=kind == "hub")


def _harm(path: Path, by_header: Entry, by_body: Entry, gone: Entry) -> None:
    data = bytearray(path.read_bytes())
    for part in (by_header.header_bytes, by_body.body or b""):
        data[data.index(part) + len(part) // 2] ^= 1
    path.write_bytes(data)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM entries WHERE id = ?", [gone.id])


async def _heal(path: Path, *entries: Entry) -> None:
    """Damage the header of one entry and the body of another, remove a third, and heal it all."""
    _harm(path, *entries)
    async with await Store.open(path) as store:
        for entry in entries:
            await store.load(entry.conversation)
        assert len(await store.quarantined()) == len(entries), "each is in quarantine"
        await store.append(entries)


def mailboxes() -> bytes:
    """Return a shard of mailboxes as it is stored."""
    boxes, now_ms = Mailboxes(), rpc.now_ms()
    boxes.open(Writer(1).public, MAILBOX, now_ms + 23 * 3_600_000, now_ms)
    return boxes.shard(0)


async def _fill_replica(store: Store, logs: list[list[Entry]]) -> None:
    await pin(store, ADDRESS, HUB)
    await store.put_meta(CURRENT, logs[0][0].conversation)
    await store.put_meta(
        PETNAMES, json.dumps({key.hex(): name for key, name in NAMES.items()}).encode()
    )
    for log in logs:
        positions = {entry.header.lane: entry.position for entry in log}
        for hub in (HUB, *OTHER_HUBS):
            store.save_acks(log[0].conversation, hub, positions.values(), 1_700_000_000_000)


async def _fill_hub(folder: Path) -> None:
    load_or_create_secret(folder / "ticket.secret")
    CertificateFile(folder / CERTIFICATE)
    conversation = conversations("hub")[0][0].conversation
    lasting, expiring = Blobs(folder / "blobs"), ExpiringBlobs(folder / "expiring")
    for blobs in (lasting, expiring):
        async with await blobs.open_write(conversation, BLOB_DIGEST, len(BLOB), 0) as writer:
            await writer.write(BLOB)
    in_a_month_ms = (int(time.time()) + 30 * 86_400) * 1000
    await expiring.keep_until(conversation, BLOB_DIGEST, in_a_month_ms)


def _fill_host(folder: Path) -> None:
    load_or_create_secret(folder / "ticket.secret")
    KeyRing.load(folder)
    journal = Journals(folder / "journal").create(HEAD)
    journal.append(TOKENS)
    journal.close()
    checkpoints_of(folder).save(b"a", NAMESPACE, b"s" * 32, b"", IDS, filled(len(IDS)))


def checkpoints_of(folder: Path) -> Checkpoints:
    """Open the checkpoints of a host's folder."""
    mac_key = KeyRing.load(folder).checkpoint
    return Checkpoints(folder / "derived" / "checkpoints", mac_key=mac_key, budget_bytes=1 << 24)
