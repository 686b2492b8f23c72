"""A flipped bit anywhere in a data folder is harmless, healed, or mended by a command."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults import folders
from tests.faults.flips import judge, run

EACH = 1999
"""Every such byte is judged here; `make faults` judges all of them."""


@pytest.mark.parametrize("start", [0, 1000])
@pytest.mark.parametrize("kind", folders.KINDS)
async def test_no_flipped_bit_is_a_dead_end(kind: str, start: int) -> None:
    outcomes, violations = await run(kind, EACH, start)
    assert violations == []
    assert outcomes["harmless"]


async def test_a_hub_that_can_read_no_conversation_says_so(tmp_path: Path) -> None:
    """Every load reads the list of membership entries, unreadable with a wrong count of cells."""
    sound = tmp_path / "sound"
    truth = await folders.build(sound, "hub")
    store = Path("log") / "log.db"
    with closing(sqlite3.connect(sound / store)) as connection:
        asked = "SELECT rootpage FROM sqlite_master WHERE name = 'membership'"
        ((page,),) = connection.execute(asked).fetchall()
        ((page_bytes,),) = connection.execute("PRAGMA page_size").fetchall()
    count_of_cells = (page - 1) * page_bytes + 3
    assert await judge(sound, truth, store, count_of_cells, 4) == "mended after STORE_CORRUPT"


async def test_a_hidden_row_does_not_bring_a_deletion_back(tmp_path: Path) -> None:
    """The rows of a tombstone lie in two tables: one page can't hide both."""
    sound = tmp_path / "sound"
    truth = await folders.build(sound, "hub")
    store = Path("log") / "log.db"
    for table in ("tombstones", "tombstones_again"):
        with closing(sqlite3.connect(sound / store)) as connection:
            asked = "SELECT rootpage FROM sqlite_master WHERE name = ?"
            ((page,),) = connection.execute(asked, [table]).fetchall()
            ((page_bytes,),) = connection.execute("PRAGMA page_size").fetchall()
        cells = int.from_bytes((sound / store).read_bytes()[(page - 1) * page_bytes + 3 :][:2])
        for place, mask in ((0, 1), (4, cells)):  # the kind of the page, and no cells
            await judge(sound, truth, store, (page - 1) * page_bytes + place, mask)
