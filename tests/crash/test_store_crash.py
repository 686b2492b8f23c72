import multiprocessing
import os
import random
from collections import Counter
from pathlib import Path

from replica.ids import EntryId
from replica.io.blobs.blobs import Blobs
from replica.io.store.store import Store
from tests.crash import children
from tests.crash.children import run

CYCLES = 25
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([run.__module__])


class Child:
    """A process that runs a program; it is forked from one that has imported all of it."""

    def __init__(self, program: str, target: Path, *arguments: int) -> None:
        reader, writer = FORKS.Pipe(duplex=False)
        self.process = FORKS.Process(target=run, args=(writer, program, target, *arguments))
        self.process.start()
        writer.close()
        self._output = os.fdopen(os.dup(reader.fileno()))
        reader.close()

    def killed_after(self, lines: int) -> list[str]:
        """Kill it once it printed so many lines; return all it printed whole."""
        printed = [self._output.readline() for _ in range(lines)]
        self.process.kill()
        return [line.rstrip() for line in (*printed, *self._rest()) if line.endswith("\n")]

    def output(self) -> list[str]:
        """Wait for its end; return the lines it printed."""
        lines = [line.rstrip() for line in self._rest()]
        assert self.process.exitcode == 0
        return lines

    def _rest(self) -> list[str]:
        with self._output:
            lines = self._output.readlines()
        self.process.join()
        return lines


async def test_acknowledged_entries_survive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    conversation = children.genesis().conversation
    chance = random.Random(7)
    acked: set[EntryId] = set()
    for number in range(1, CYCLES + 1):
        child = Child("append", path, number)
        for line in child.killed_after(chance.randrange(1, 60)):
            acked.update(EntryId(bytes.fromhex(word)) for word in line.split())
        # A dead process holds no lock: opening proves it.
        async with await Store.open(path) as store:
            entries = (await store.load(conversation)).entries
            assert await store.quarantined() == []
        assert acked <= {entry.id for entry in entries}
        assert all(entry.body is not None for entry in entries)
        lanes = Counter(entry.header.lane for entry in entries[1:])
        assert all(count % children.GROUP == 0 for count in lanes.values()), "half an append"
    assert len(acked) > CYCLES * children.GROUP


async def test_a_write_the_system_refuses_is_refused_and_the_store_stays_usable(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.db"
    words = [line.split() for line in Child("fill", path).output()]
    groups = [ids for word, *ids in words if word == "acked"]
    assert [word for word, *_ in words].count("refused") == 1
    assert len(groups) > 2
    kept = next(int(count) for word, count, *_ in words if word == "kept")
    assert kept == 1 + children.GROUP * (len(groups) - 1)
    async with await Store.open(path) as store:
        entries = (await store.load(children.genesis().conversation)).entries
    acked = [EntryId(bytes.fromhex(word)) for ids in groups for word in ids]
    assert [entry.id for entry in entries[1:]] == acked


async def test_an_upload_resumes_after_a_kill_where_it_was_committed(tmp_path: Path) -> None:
    digest, data = children.blob()
    blobs = Blobs(tmp_path / "blobs")
    chance = random.Random(7)
    committed = 0
    for _ in range(3):
        lines = Child("upload", tmp_path / "blobs").killed_after(chance.randrange(2, 100))
        assert int(lines[0]) >= committed
        state = await blobs.stat(children.CONVERSATION, digest)
        assert state.committed_bytes >= max(map(int, lines))
        committed = state.committed_bytes
    assert int(Child("upload", tmp_path / "blobs").output()[0]) == committed
    read = [chunk async for chunk in blobs.read(children.CONVERSATION, digest)]
    assert b"".join(read) == data
