"""Files that a store is opened on: empty, half-written, of other versions, of other programs."""

import asyncio
import os
import shutil
import sqlite3
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from replica.errors import StoreError
from replica.io.store import schema
from replica.io.store.readonly import open_read_only
from replica.io.store.salvage import repair_store
from replica.io.store.store import Store
from replica.io.store.store_lock import require_free
from replica.limits import DRAFT
from replica.refusals import DraftUnknown, StoreCorrupt, StoreLocked, StoreVersionUnknown
from tests.support.files import query
from tests.support.writers import Writer

JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
PAGE_BYTES, SECTOR_BYTES = 4096, 512
NUMBER = DRAFT * schema.STEPS_MAX + len(schema.MIGRATIONS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder / "log.db"


def journal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")


# --- first openings that were killed ------------------------------------------------------


def _empty(path: Path) -> None:
    path.touch()


def _journal_alone(path: Path) -> None:
    """The journal is synced, the first page not yet written (sqlite.org/fileformat.html §3)."""
    path.touch()
    head = struct.pack(">8s5I", JOURNAL_MAGIC, 0, 7, 0, SECTOR_BYTES, PAGE_BYTES)
    journal_of(path).write_bytes(head.ljust(SECTOR_BYTES, b"\0"))


def _page_half_written(path: Path) -> None:
    _switched_to_wal(path)
    _journal_alone(path)
    path.write_bytes(path.read_bytes()[: PAGE_BYTES // 2])


def _page_written_but_not_committed(path: Path) -> None:
    _switched_to_wal(path)
    _journal_alone(path)


def _switched_to_wal(path: Path) -> None:
    query(path, "PRAGMA journal_mode = WAL")
    assert path.stat().st_size == PAGE_BYTES


def _torn_wal(path: Path) -> None:
    """The first step was being written into the WAL."""
    made = path.with_name("made.db")
    connection = sqlite3.connect(made, isolation_level=None)
    for sql in ("PRAGMA journal_mode = WAL", "BEGIN", *schema.MIGRATIONS[0], "COMMIT"):
        connection.execute(sql)
    shutil.copy(made, path)
    wal = Path(f"{made}-wal").read_bytes()
    Path(f"{path}-wal").write_bytes(wal[: len(wal) // 2])
    connection.close()


@pytest.mark.parametrize("look_first", [False, True], ids=["write", "look"])
@pytest.mark.parametrize(
    "leave",
    [
        _empty,
        _journal_alone,
        _page_half_written,
        _page_written_but_not_committed,
        _switched_to_wal,
        _torn_wal,
    ],
)
async def test_a_killed_first_opening_is_completed(
    path: Path, leave: Callable[[Path], None], look_first: bool
) -> None:
    await asyncio.to_thread(leave, path)
    if look_first:
        async with open_read_only(path) as store:
            assert await store.conversations() == []
    genesis = Writer(1).genesis()
    async with await Store.open(path) as store:
        await store.append([genesis])
        assert (await store.load(genesis.conversation)).entries == [genesis]


async def test_a_store_killed_between_two_steps_continues_with_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genesis = Writer(1).genesis()
    async with await Store.open(path) as store:
        await store.append([genesis])
    more = [*schema.MIGRATIONS, ["CREATE TABLE added (later)"]]
    monkeypatch.setattr(schema, "MIGRATIONS", more)
    async with open_read_only(path) as store:
        assert (await store.load(genesis.conversation)).entries == [genesis]
    assert query(path, "SELECT count(*) FROM added") == [(0,)]
    assert query(path, "PRAGMA user_version") == [(NUMBER + 1,)]


async def test_a_failing_migration_leaves_the_version_before_it(path: Path) -> None:
    async with await Store.open(path):
        pass
    broken = [*schema.MIGRATIONS, ["CREATE TABLE half (made)", "CREATE TABLE half (made)"]]
    writer = await schema.connect_writer(path)
    with pytest.raises(sqlite3.OperationalError):
        await writer.run(partial(schema.migrate, steps=broken))
    await writer.close()
    assert query(path, "PRAGMA user_version") == [(NUMBER,)]
    assert query(path, "SELECT 1 FROM sqlite_schema WHERE name = 'half'") == []


async def test_a_migration_that_is_cancelled_at_its_commit_is_whole(path: Path) -> None:
    async with await Store.open(path):
        pass
    writer = await schema.connect_writer(path)
    loop, is_cancelled = asyncio.get_running_loop(), threading.Event()

    def cancel_at_commit(text: str) -> None:
        """Keep SQLite's thread in front of its COMMIT until the task knows that it is cancelled."""
        if text == "COMMIT":
            loop.call_soon_threadsafe(migrating.cancel)
            loop.call_soon_threadsafe(loop.call_later, 0.01, is_cancelled.set)
            assert is_cancelled.wait(10)

    await writer.set_trace_callback(cancel_at_commit)
    more = [*schema.MIGRATIONS, ["CREATE TABLE added (later)"]]
    migrating = asyncio.create_task(writer.run(partial(schema.migrate, steps=more)))
    with pytest.raises(asyncio.CancelledError):
        await migrating
    await writer.close()
    assert query(path, "PRAGMA user_version") == [(NUMBER + 1,)]


async def test_reading_during_a_first_opening_is_refused(path: Path) -> None:
    async with await Store.open(path):
        query(path, f"PRAGMA user_version = {DRAFT * schema.STEPS_MAX}")
        with pytest.raises(StoreLocked):
            async with open_read_only(path):
                pass


# --- refused files are unchanged ----------------------------------------------------------


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    await asyncio.to_thread(path.write_bytes, b"these are no pages " * 1000)
    with pytest.raises(StoreCorrupt):
        await Store.open(path)


def died_with_its_wal(path: Path, number: int) -> dict[str, bytes]:
    """Leave a store of another number, its WAL still to be recovered; return its files."""
    made = path.with_name("made.db")
    connection = sqlite3.connect(made, isolation_level=None)
    for sql in (
        "PRAGMA journal_mode = WAL",
        f"PRAGMA application_id = {schema.APPLICATION_ID}",
        f"PRAGMA user_version = {number}",
        "CREATE TABLE entries (something_else)",
    ):
        connection.execute(sql)
    for suffix in ("", "-wal"):
        shutil.copy(f"{made}{suffix}", f"{path}{suffix}")
    connection.close()
    return files_of(path)


def files_of(path: Path) -> dict[str, bytes]:
    return {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal")}


@pytest.mark.parametrize(
    ("number", "refusal", "words"),
    [
        (NUMBER + 1, StoreVersionUnknown, "steps"),
        (2, DraftUnknown, "draft 1"),
        (NUMBER - schema.STEPS_MAX, DraftUnknown, f"draft {DRAFT - 1}"),
        (NUMBER + schema.STEPS_MAX, DraftUnknown, f"draft {DRAFT + 1}"),
    ],
    ids=["more steps", "before drafts had numbers", "the draft before", "the next draft"],
)
async def test_a_store_of_another_number_is_refused_and_unchanged(
    path: Path, number: int, refusal: type[StoreError], words: str
) -> None:
    before = await asyncio.to_thread(died_with_its_wal, path, number)
    assert before["-wal"]
    with pytest.raises(refusal, match=words):
        await Store.open(path)
    with pytest.raises(refusal, match=words):
        async with open_read_only(path):
            pass
    assert files_of(path) == before


def hot(path: Path, *made_by: str) -> None:
    """Leave a database that these statements made, in the middle of a further transaction."""
    made = path.with_name("made.db")
    connection = sqlite3.connect(made, isolation_level=None)
    for sql in (*made_by, "PRAGMA cache_size = 1", "BEGIN"):
        connection.execute(sql)
    big = [("x" * 3_000,)] * 50
    connection.executemany("INSERT INTO notes VALUES (?)", big)  # More than the cache holds.
    for suffix in ("", "-journal"):
        shutil.copy(f"{made}{suffix}", f"{path}{suffix}")
    connection.close()
    assert path.stat().st_size > made.stat().st_size
    made.unlink()


@pytest.mark.parametrize(
    ("made_by", "refusal"),
    [
        (("CREATE TABLE notes (text)",), StoreCorrupt),
        (
            (
                "CREATE TABLE notes (text)",
                f"PRAGMA application_id = {schema.APPLICATION_ID}",
                f"PRAGMA user_version = {NUMBER + 1}",
            ),
            StoreVersionUnknown,
        ),
    ],
    ids=["foreign", "newer"],
)
async def test_a_refused_file_loses_its_half_written_transaction_and_nothing_else(
    path: Path, made_by: tuple[str, ...], refusal: type[StoreError]
) -> None:
    await asyncio.to_thread(hot, path, *made_by)
    for _ in range(2):
        with pytest.raises(refusal):
            await Store.open(path)
        with pytest.raises(refusal):
            async with open_read_only(path):
                pass
    assert query(path, "PRAGMA journal_mode") == [("delete",)]
    assert query(path, "SELECT name FROM sqlite_schema") == [("notes",)]
    assert query(path, "SELECT count(*) FROM notes") == [(0,)]
    assert not journal_of(path).exists()


async def test_an_opening_that_is_cancelled_anywhere_leaves_nothing_locked(tmp_path: Path) -> None:
    turns, is_open = 1, False
    while not is_open:
        path = tmp_path / str(turns) / "log.db"
        opening = asyncio.create_task(Store.open(path))
        for _ in range(turns):
            await asyncio.sleep(0)
        is_open = opening.done()
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await (await opening).close()
        async with await Store.open(path) as store:
            assert await store.conversations() == []
        turns += turns // 4 + 1


@pytest.mark.parametrize("name", [b"checksum", b"body_only", b"membership", b"body BLOB"])
async def test_a_store_whose_tables_have_another_form_is_damaged(path: Path, name: bytes) -> None:
    genesis = Writer(1).genesis()
    async with await Store.open(path) as store:
        await store.append([genesis])
    for _ in flips(path, name):
        with pytest.raises(StoreCorrupt, match="the file itself is damaged"):
            await Store.open(path)
        with pytest.raises(StoreCorrupt, match="the file itself is damaged"):
            async with open_read_only(path):
                pass
    await repair_store(path)
    async with await Store.open(path) as store:
        assert (await store.load(genesis.conversation)).entries == [genesis]


def flips(path: Path, name: bytes) -> Iterator[None]:
    """Change each byte of a text in a file in turn; the last one stays changed."""
    sound = path.read_bytes()
    for place in range(len(name)):
        changed = bytearray(sound)
        changed[sound.index(name) + place] ^= 4
        path.write_bytes(changed)
        yield


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
async def test_a_lock_that_is_no_file_is_refused_by_its_path(
    path: Path, make: Callable[[Path], None]
) -> None:
    lock = path.with_name(f"{path.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    make(lock)
    with pytest.raises(StoreError, match=f"^{lock} is not a regular file$"):
        await Store.open(path)
    with pytest.raises(StoreError, match=f"^{lock} is not a regular file$"):
        require_free(path)


# --- names of folders -----------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "darwin", reason="names of files are UTF-8 there")
@pytest.mark.parametrize("name", [b"d\xff", "dä".encode(), b"d%41?mode=ro#x"])
async def test_a_folder_may_have_any_name(tmp_path: Path, name: bytes) -> None:
    path = tmp_path / os.fsdecode(name) / "log.db"
    path.parent.mkdir()
    genesis = Writer(1).genesis()
    async with await Store.open(path) as store:
        await store.append([genesis])
    assert path.is_file()
    async with open_read_only(path) as store:
        assert (await store.load(genesis.conversation)).entries == [genesis]
