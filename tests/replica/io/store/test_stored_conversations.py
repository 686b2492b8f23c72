"""The list of the stored conversations, while the store is closed."""

from pathlib import Path
from typing import Any

import pytest

from replica.errors import ReplicaClosed
from replica.io.store.store import Store
from replica.io.store.stored_conversations import stored_conversations
from tests.support.writers import Writer

READS = 5
"""Reads that a list of sound conversations takes."""


@pytest.mark.parametrize("turn", range(READS))
async def test_a_store_that_is_closed_meanwhile_says_so_and_logs_nothing(
    tmp_path: Path, turn: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = await Store.open(tmp_path / "s" / "log.db")
    await store.append([Writer(1).genesis()])
    made = 0

    async def read(text: str, *given: object) -> list[tuple[Any, ...]]:
        nonlocal made
        if made == turn:
            await store.close()
        made += 1
        return await store._rows(text, *given)

    with pytest.raises(ReplicaClosed):
        await stored_conversations(read, store._repairs)
    assert made == turn + 1
    assert caplog.records == []
