"""What becomes of a damaged data folder: harmless, healed, or mended by a command.

A damage is harmless, or it is healed by the entries that a peer sends again, or a typed
error names a command that mends the folder. Anything else is a violation.

A part of the start that opens no damaged file reads what it read on the sound folder, so it is
left out: which files each part opens is observed, not assumed. A database is known by the
answers to its statements (recording.py). Bytes among zeros are flipped in blocks at first: where
no answer changes, no statement reads them. Where one does, each byte is judged alone.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from antiphon.cli.commands.repair import SECRETS
from replica.errors import AntiphonError
from replica.io import keys
from replica.io.calls.hub_calls import pin
from replica.io.conversations.joining import save_hub
from replica.io.store.salvage import StoreRepair, read_pages, repair_store
from replica.io.store.store import Store
from replica.refusals import StoreCorrupt
from tests.faults import folders
from tests.faults.damage import BLOCK_BYTES, Block, Damage, Flip, contents, is_between
from tests.faults.folders import Truth
from tests.faults.parts import Part, Start, Violation
from tests.faults.recording import Recording, recording

WAL = Path("log/log.db-wal")
KNOWN_MAX = 8
"""Runs on a damaged WAL whose answers are kept."""
DATABASE = (Path("log/log.db"), WAL)
"""Files that a start reads through SQLite alone; `Store.open` opens the first to create it."""


class Judge:
    """Judges damages to a copy of one sound folder."""

    def __init__(self, sound: Path, truth: Truth, scratch: Path) -> None:
        """Copy from `sound`, a folder that nothing else changes, to `scratch`."""
        self.is_thorough = False
        """Whether nothing is left out."""
        self.sound = contents(sound)
        self.truth = truth
        self._times = {file: (sound / file).stat().st_mtime_ns for file in self.sound}
        self._scratch = scratch
        self._start = Start(scratch, truth)
        self._opened: dict[str, set[Path]] = {}
        self._recording = Recording(self._start.log)
        self._known: dict[Path, list[tuple[Recording, str]]] = {}
        self._mended: set[bytes | None] = set()
        self._unread: dict[tuple[Path, int], bool] = {}

    @classmethod
    async def of(cls, sound: Path, truth: Truth, scratch: Path) -> Self:
        """Return a judge, which has observed a start on the sound folder."""
        judge = cls(sound, truth, scratch)
        judge._lay({})
        with recording(judge._start.log) as judge._recording:
            for name, part in judge._start.parts().items():
                with _opened_files() as opened:
                    if await part():
                        raise Violation(f"{name}: a sound folder is healed")
                relative = {Path(one).relative_to(scratch) for one in opened
                            if one.startswith(f"{scratch}/")}  # fmt: skip
                judge._opened[name] = relative
        return judge

    async def judge(self, damage: Damage) -> str:
        """Damage a copy; return the outcome. Raises Violation.

        A byte that no statement reads is as harmless as one that changes no answer.
        """
        before = self.sound[damage.file]
        data = damage.of(before)
        if data == before:
            return "harmless"
        if not self.is_thorough and damage.file in DATABASE and len(data) == len(before):
            if isinstance(damage, Flip) and self._is_unread(damage):
                return "unread"
            for known, outcome in self._known.get(damage.file, [(self._recording, "harmless")]):
                if self._reads_alike(known, damage.file, data):
                    return outcome
        self._lay({damage.file: data})
        start = Start(self._scratch, self.truth, self._start.folded)
        start.hides_much = not isinstance(damage, Flip)
        try:
            return await self._started(start, damage.file)
        except AntiphonError as error:
            await self._mend(start, error)
            return f"mended after {error.reason}"

    async def _started(self, start: Start, file: Path) -> str:
        """Start on the damaged folder; return the outcome."""
        if file != WAL or self.is_thorough:
            return await _outcome(self._concerned(start, file))
        # SQLite ends a WAL before a damaged frame: all bytes of a frame have the same answers.
        with recording(start.log) as record:
            outcome = await _outcome(self._concerned(start, file))
        known = self._known.setdefault(file, [(self._recording, "harmless")])
        known[1:] = [(record, outcome), *known[1:KNOWN_MAX]]
        return outcome

    def _concerned(self, start: Start, file: Path) -> Iterator[Part]:
        """Yield the parts that open a file."""
        in_log = {one for one in DATABASE if file in DATABASE}
        for name, part in start.parts().items():
            if self.is_thorough or self._opened[name] & {file, *in_log}:
                yield part

    def _is_unread(self, flip: Flip) -> bool:
        """Say whether no statement reads a byte, as it is with all between rows of its block."""
        before, block = self.sound[flip.file], flip.at // BLOCK_BYTES
        if not is_between(before, flip.at):
            return False
        if (flip.file, block) not in self._unread:
            changed = (Block(flip.file, block, mask).of(before) for mask in (0xFF, 0x55))
            alike = all(self._reads_alike(self._recording, flip.file, data) for data in changed)
            self._unread[flip.file, block] = alike
        return self._unread[flip.file, block]

    def _reads_alike(self, known: Recording, file: Path, data: bytes) -> bool:
        """Say whether SQLite answers on a damaged database as it did in a run."""
        self._clear_log()
        for one in DATABASE:
            if one in self.sound:
                (self._scratch / one).write_bytes(data if one == file else self.sound[one])
        return known.is_answered_alike()

    def _clear_log(self) -> None:
        for one in (self._scratch / "log").iterdir():
            one.unlink()

    def _lay(self, damaged: dict[Path, bytes]) -> None:
        """Make the scratch folder a copy of the sound one, but for the damaged files."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        for file, data in (self.sound | damaged).items():
            path = self._scratch / file
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as out:
                out.write(data)
            os.utime(path, ns=(self._times[file], self._times[file]))

    async def _mend(self, start: Start, error: AntiphonError) -> None:
        """Do what the error says, and start again."""
        rebuilt_from = None
        if "antiphon repair" in error.next_step:
            rebuilt_from = await self._rebuilt_from(start.log)
            if rebuilt_from in self._mended:
                return
            _repair_key(start.folder / "identity.key", self.truth)
            for secret in SECRETS:
                keys.repair_secret(start.folder / secret)
            start.has_said_loss = _says_loss(await repair_store(start.log))
        elif "antiphon hub trust" in error.next_step:
            async with await Store.open(start.log) as store:
                await pin(store, folders.ADDRESS, folders.HUB)
        elif "write the hub's address there" in error.detail:
            save_hub(start.folder, folders.ADDRESS)
        else:
            raise Violation(f"nothing mends {error.reason}: {error.next_step}") from error
        try:
            await _outcome(start.parts().values())
        except AntiphonError as again:
            raise Violation(f"{again.reason} after its own next step: {again.detail}") from again
        if rebuilt_from is not None:
            self._mended.add(rebuilt_from)

    async def _rebuilt_from(self, log: Path) -> bytes | None:
        """Return all that the rebuilding of a store depends on; None if it may not be rebuilt.

        A repair rebuilds what can't be opened, from what its pages hold (salvage.py). If a
        store was mended that was made of the same, beside the same files, then so is this one.
        """
        if self.is_thorough:
            return None
        try:
            async with await Store.open(log):
                return None
        except StoreCorrupt:
            found = read_pages((log,), log.parent.glob("log.db-wal"))
            beside = contents(self._scratch)
            for file in DATABASE:
                beside.pop(file, None)
            return hashlib.sha256(repr((found, beside)).encode()).digest()


def _repair_key(path: Path, truth: Truth) -> None:
    """Correct one wrong bit; what has more of them is restored from the backup."""
    try:
        keys.repair(path)
    except AntiphonError as error:
        if "antiphon key restore" not in error.next_step:
            raise
        keys.restore(path, truth.backup, folders.PASSPHRASE)


def _says_loss(done: StoreRepair) -> bool:
    return bool(done.lost or done.deletions_lost)


async def _outcome(parts: Any) -> str:
    healed = [await part() for part in parts]
    return "healed" if any(healed) else "harmless"


_watched: list[set[str]] = []


def _note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched and event in ("open", "sqlite3.connect"):
        name = os.fsdecode(arguments[0]) if not isinstance(arguments[0], int) else ""
        _watched[-1].add(name.removeprefix("file:").split("?")[0])


sys.addaudithook(_note_opened)


@contextmanager
def _opened_files() -> Iterator[set[str]]:
    """Collect the paths of the files that Python opens in the block."""
    _watched.append(set())
    try:
        yield _watched[-1]
    finally:
        _watched.pop()
