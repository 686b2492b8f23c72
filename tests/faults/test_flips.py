"""A flipped bit anywhere in a data folder is harmless, healed, or mended by a command."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults import folders
from tests.faults.damage import Flip, flips
from tests.faults.flips import prepared, run
from tests.faults.one_thread import one_thread

EACH = {"flips": 2999, "cuts": 29, "swaps": 23}
"""Every such damage is judged here; `make faults` judges all of them."""
LOG = Path("log") / "log.db"


@pytest.mark.parametrize("sort", EACH)
@pytest.mark.parametrize("kind", folders.KINDS)
async def test_no_damage_is_a_dead_end(kind: str, sort: str) -> None:
    done = await run(kind, sort, EACH[sort])
    assert done.violations == []
    assert done.total["harmless"] + done.total["unread"] < done.judged
    assert sort != "flips" or (done.total["harmless"] and done.total["unread"])


@pytest.mark.parametrize("kind", folders.KINDS)
async def test_what_a_judge_leaves_out_changes_no_outcome(tmp_path: Path, kind: str) -> None:
    judge = await prepared(tmp_path, kind)
    some = flips(judge.sound)[::19_997]
    with one_thread():
        outcomes = [await judge.judge(flip) for flip in some]
    judge.is_thorough = True
    for flip, outcome in zip(some, outcomes, strict=True):
        found = await judge.judge(flip)
        assert found == outcome.replace("unread", "harmless"), flip


def _page_of(database: Path, table: str) -> int:
    """Return where the first page of a table begins in the file."""
    with closing(sqlite3.connect(database)) as connection:
        asked = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        ((page,),) = connection.execute(asked, [table]).fetchall()
        ((page_bytes,),) = connection.execute("PRAGMA page_size").fetchall()
    return int((page - 1) * page_bytes)


async def test_a_hub_that_can_read_no_conversation_says_so(tmp_path: Path) -> None:
    """Every load reads the list of membership entries, unreadable with a wrong count of cells."""
    judge = await prepared(tmp_path, "hub")
    count_of_cells = _page_of(tmp_path / "sound" / LOG, "membership") + 3
    assert await judge.judge(Flip(LOG, count_of_cells, 4)) == "mended after STORE_CORRUPT"


async def test_a_hidden_row_does_not_bring_a_deletion_back(tmp_path: Path) -> None:
    """The rows of a tombstone lie in two tables: one page can't hide both."""
    judge = await prepared(tmp_path, "hub")
    for table in ("tombstones", "tombstones_again"):
        page = _page_of(tmp_path / "sound" / LOG, table)
        cells = int.from_bytes(judge.sound[LOG][page + 3 :][:2])
        for place, mask in ((0, 1), (4, cells)):  # the kind of the page, and no cells
            await judge.judge(Flip(LOG, page + place, mask))
