"""What a data folder is used for: noted at the first start, told by its contents before that."""

import os
import threading
from asyncio import run
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from replica.errors import StoreError
from replica.ids import PublicKey
from replica.io import keys
from replica.io.calls.hub_calls import pin
from replica.io.driver.replica import Replica
from replica.io.store.folder_use import FILE, FolderTaken, FolderUse, take_folder, use_of
from replica.io.store.store import Store
from replica.log import Genesis
from tests.support.writers import Writer

ALL = list(FolderUse)


async def begin(folder: Path) -> PublicKey:
    """Begin a conversation in a folder without a hub; return the replica's key."""
    key = keys.load_or_create(folder / "identity.key")
    async with Replica.open(folder / "log" / "log.db", key) as replica:
        await replica.create(Genesis((replica.public,)))
        return replica.public


@pytest.mark.parametrize("use", ALL)
async def test_a_new_folder_is_of_who_starts_there_first(tmp_path: Path, use: FolderUse) -> None:
    folder = tmp_path / "a new one"
    assert await use_of(folder) is None
    await take_folder(folder, use)
    await take_folder(folder, use)
    assert await use_of(folder) is use
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600
    for other in set(ALL) - {use}:
        with pytest.raises(FolderTaken) as caught:
            await take_folder(folder, other)
        assert f"{folder} is the folder of a {use}" in caught.value.detail
        assert f"`--data-dir '{folder}-{other}'`" in caught.value.next_step
    await take_folder(folder, next(iter(set(ALL) - {use})), use)
    assert await use_of(folder) is use


def test_of_two_that_start_at_once_one_gets_the_folder(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def take(number: int) -> bool:
        start.wait()
        try:
            run(take_folder(tmp_path, ALL[number % 3]))
        except FolderTaken:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        taken = [ALL[n % 3] for n, has in enumerate(pool.map(take, range(8))) if has]
    assert len(set(taken)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


# --- folders from before there were notes ----------------------------------------------------


@pytest.mark.parametrize("has_secret", [False, True], ids=["a replica", "once a hub's too"])
async def test_a_log_that_this_key_writes_is_a_replica_s(tmp_path: Path, has_secret: bool) -> None:
    await begin(tmp_path)
    if has_secret:
        keys.load_or_create_secret(tmp_path / "ticket.secret")
    assert await use_of(tmp_path) is FolderUse.REPLICA
    with pytest.raises(FolderTaken):
        await take_folder(tmp_path, FolderUse.HUB)
    assert (tmp_path / FILE).read_text() == "replica\n"


async def test_a_log_with_the_pinned_key_of_a_hub_is_a_replica_s(tmp_path: Path) -> None:
    keys.load_or_create(tmp_path / "identity.key")
    async with await Store.open(tmp_path / "log" / "log.db") as store:
        await pin(store, "127.0.0.1:7411", Writer(1).public)
    assert await use_of(tmp_path) is FolderUse.REPLICA


async def test_a_log_of_others_beside_a_secret_for_tickets_is_a_hub_s(tmp_path: Path) -> None:
    keys.load_or_create(tmp_path / "identity.key")
    async with await Store.open(tmp_path / "log" / "log.db") as store:
        await store.append([Writer(1).genesis()])
    assert await use_of(tmp_path) is None  # restored from a key and a log alone
    keys.load_or_create_secret(tmp_path / "ticket.secret")
    assert await use_of(tmp_path) is FolderUse.HUB


async def test_a_folder_with_checkpoints_is_a_host_s_wherever_its_secrets_are(
    tmp_path: Path,
) -> None:
    await begin(tmp_path)
    keys.load_or_create_secret(tmp_path / "ticket.secret")
    (tmp_path / "derived").mkdir()
    assert await use_of(tmp_path) is FolderUse.HOST


@pytest.mark.parametrize("damaged", [b"", b"rep\xffica\n"])
async def test_a_damaged_note_is_written_again(tmp_path: Path, damaged: bytes) -> None:
    await begin(tmp_path)
    (tmp_path / FILE).write_bytes(damaged)
    await take_folder(tmp_path, FolderUse.REPLICA)
    assert (tmp_path / FILE).read_text() == "replica\n"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
async def test_a_note_that_is_no_file_is_refused_and_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    note = tmp_path / FILE
    make(note)
    for call in (use_of(tmp_path), take_folder(tmp_path, FolderUse.HUB)):
        with pytest.raises(StoreError, match=f"^{note} is not a regular file$"):
            await call


@pytest.mark.parametrize("below", ["", "deeper"])
async def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path, below: str) -> None:
    file = tmp_path / "notes.txt"
    file.touch()
    with pytest.raises(StoreError, match=r"notes\.txt.* is no folder") as refused:
        await take_folder(file / below, FolderUse.REPLICA)
    assert refused.value.next_step == "Give another folder."
