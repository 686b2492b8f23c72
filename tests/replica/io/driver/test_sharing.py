"""What a process does with its memory where it takes over a store that has lost entries."""

from pathlib import Path

from replica.io.driver.shared_store import SharedStore
from tests.replica.io.driver.test_shared_store import known, pair_to_part, say, stored
from tests.support.files import query


async def test_entries_that_the_store_has_lost_are_stored_again(tmp_path: Path) -> None:
    """As where a backup of it was put back between the end of one process and the next."""
    path = tmp_path / "s"
    async with pair_to_part(path) as (first, _, second, conversation):
        assert isinstance(second.store, SharedStore)
        kept = await say(second, conversation, "kept")
        lost = await say(second, conversation, "lost")
        await second.processes.barrier()
        query(path, "DELETE FROM entries WHERE id = ?", lost)
        await first.aclose()
        behind = await say(second, conversation, "behind")
        assert {kept, lost, behind} <= known(second, conversation)
        restoring = second.store.holding._restoring
        assert restoring is not None
        await restoring
    assert {kept, lost, behind} <= await stored(path, conversation)
