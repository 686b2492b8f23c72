import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from replica.ids import EntryId
from replica.io.blobs import Blobs
from replica.io.store import Store
from tests.crash import children

ROOT = Path(__file__).parents[2]
CYCLES = 25


def start(program: str, target: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.crash.children", program, str(target), *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def killed_after(child: subprocess.Popen[str], lines: int) -> list[str]:
    """Kill the child once it printed so many lines; return all it printed whole."""
    assert child.stdout is not None
    with child:
        printed = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        printed += child.stdout.readlines()
    return [line.rstrip() for line in printed if line.endswith("\n")]


async def test_acknowledged_entries_survive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    conversation = children.genesis().conversation
    chance = random.Random(7)
    acked: set[EntryId] = set()
    for run in range(1, CYCLES + 1):
        child = start("append", path, str(run))
        for line in killed_after(child, chance.randrange(1, 60)):
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
    child = start("fill", path)
    output, _ = child.communicate()
    assert child.returncode == 0
    words = [line.split() for line in output.splitlines()]
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
        lines = killed_after(start("upload", tmp_path / "blobs"), chance.randrange(2, 100))
        assert int(lines[0]) >= committed
        state = await blobs.stat(children.CONVERSATION, digest)
        assert state.committed_bytes >= max(map(int, lines))
        committed = state.committed_bytes
    child = start("upload", tmp_path / "blobs")
    output, _ = child.communicate()
    assert int(output.splitlines()[0]) == committed
    read = [chunk async for chunk in blobs.read(children.CONVERSATION, digest)]
    assert b"".join(read) == data
