"""Damage data folders byte by byte, start on each, and judge the outcomes.

    python -m tests.faults.flips                   every byte of all folders
    python -m tests.faults.flips --each 50         every 50th byte
    python -m tests.faults.flips --work FOLDER     go on there where the same call was ended

A damage is harmless, or it is healed by the entries that a peer sends again, or a typed
error names a command that mends the folder. Anything else is a violation. Besides flipped
bytes, files are cut off before each of their sectors, and some of their sectors are swapped.
"""

import argparse
import asyncio
import gc
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from tests.faults import damage, folders
from tests.faults.damage import Damage
from tests.faults.judge import Judge
from tests.faults.one_thread import one_thread

SAVE_EVERY = 200
"""Damages after which a folder with progress is written."""
MEMORY = Path("/dev/shm")
"""Folders lie there if it exists: a sync costs nothing."""
_LONG = 20
"""Characters from which a part of a file's name is a digest, which says nothing."""


@dataclass(slots=True)
class Progress:
    """The damages of one sort to one folder that were judged."""

    path: Path | None = None
    judged: int = 0
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    """By file."""
    violations: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, path: Path | None) -> "Progress":
        """Return what an earlier call has left in a file, if there is one."""
        if path is None or not path.exists():
            return cls(path)
        kept = json.loads(path.read_text())
        outcomes = {file: Counter(counts) for file, counts in kept["outcomes"].items()}
        return cls(path, kept["judged"], outcomes, kept["violations"])

    def note(self, file: Path, outcome: str) -> None:
        """Count an outcome."""
        self.judged += 1
        self.outcomes.setdefault(_name_of(file), Counter())[outcome] += 1
        if self.judged % SAVE_EVERY == 0:
            self.save()

    def save(self) -> None:
        """Write it, whole or not at all."""
        if self.path is None:
            return
        draft = self.path.with_suffix(".draft")
        kept = {one: getattr(self, one) for one in ("judged", "outcomes", "violations")}
        draft.write_text(json.dumps(kept))
        draft.replace(self.path)

    @property
    def total(self) -> Counter[str]:
        """The outcomes in all files."""
        return sum(self.outcomes.values(), Counter())

    def lines(self) -> Iterator[str]:
        """Yield a table with a row for each file, and the violations."""
        for file, counts in self.outcomes.items():
            words = ", ".join(f"{n:,} {outcome}" for outcome, n in counts.most_common())
            yield f"  {file:<32} {counts.total():>9,}  {words}"
        yield from (f"  violation: {one}" for one in self.violations)


def _name_of(file: Path) -> str:
    """Return the path of a file without the digests in it."""
    parts = (f"*{Path(one).suffix}" if len(one) > _LONG else one for one in file.parts)
    return "/".join(parts)


async def judge_all(judge: Judge, damages: Sequence[Damage], progress: Progress) -> None:
    """Judge the damages that were not judged before."""
    for one in damages[progress.judged :]:
        try:
            outcome = await judge.judge(one)
        except Exception as error:  # noqa: BLE001  # any other is a violation as well
            outcome = "VIOLATION"
            progress.violations.append(f"{one}: {type(error).__name__}: {error}")
        progress.note(one.file, outcome)
    progress.save()


async def prepared(folder: Path, kind: str) -> Judge:
    """Return a judge of the folder of this kind in `folder`, which is made if it is not there."""
    sound = folder / "sound"
    if not sound.exists():
        await folders.build(sound, kind)
    return await Judge.of(sound, folders.truth_of(sound, kind), folder / "scratch")


SORTS: dict[str, Callable[[dict[Path, bytes]], list[Damage]]] = {
    "flips": damage.flips,
    "cuts": damage.cuts,
    "swaps": damage.swaps,
    "flips of all bits": lambda files: damage.flips(files, 0xFF),
    "flips of bit 0": lambda files: damage.flips(files, 1),
    "flips of bit 7": lambda files: damage.flips(files, 0x80),
}
"""What is done to the folders; the first three of them unless others are named."""


async def run(kind: str, sort: str, each: int) -> Progress:
    """Judge every `each`-th damage of a sort to a folder of this kind."""
    with tempfile.TemporaryDirectory() as name, one_thread():
        judge, progress = await prepared(Path(name), kind), Progress()
        await judge_all(judge, SORTS[sort](judge.sound)[::each], progress)
    return progress


async def judge_folders(work: Path, kinds: Sequence[str], sort: str, each: int) -> list[Progress]:
    """Judge all damages of a sort, round after round, to folders that are kept in `work`."""
    with one_thread():
        judges = [await prepared(work / kind, kind) for kind in kinds]
        damages = [SORTS[sort](judge.sound)[::each] for judge in judges]
        kept = [Progress.of(work / kind / f"{sort}.json") for kind in kinds]
        gc.freeze()  # what was imported is not looked at again
        for part in range(1, damage.ROUNDS + 1):
            for judge, all_of_them, progress in zip(judges, damages, kept, strict=True):
                end = len(all_of_them) * part // damage.ROUNDS
                await judge_all(judge, all_of_them[:end], progress)
    return kept


def main() -> int:
    """Print a table for each folder; return 1 if there is a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.flips", description=__doc__)
    parser.add_argument("--each", type=int, default=1, help="judge every N-th damage")
    parser.add_argument("--kind", choices=folders.KINDS, action="append")
    parser.add_argument("--sort", choices=SORTS, action="append", help="default: the first three")
    parser.add_argument("--work", type=Path, help="a folder that is kept, such as one in /dev/shm")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    failed, kinds = 0, given.kind or folders.KINDS
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        for sort in given.sort or tuple(SORTS)[:3]:
            work = given.work or Path(name)
            found = asyncio.run(judge_folders(work, kinds, sort, given.each))
            for kind, progress in zip(kinds, found, strict=True):
                print(f"{kind}, {sort}: {progress.judged:,} {dict(progress.total)}")
                print(*progress.lines(), sep="\n", flush=True)
                failed += len(progress.violations)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
