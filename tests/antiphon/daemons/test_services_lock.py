"""One `antiphon up` per folder."""

import os
from pathlib import Path

import pytest

from antiphon.daemons.errors import AlreadyRunning
from antiphon.daemons.services_lock import services_lock, until_stores_are_free
from replica.io.store.store import Store


def test_a_second_one_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    for _ in range(2):  # the lock ends with the block
        with (
            services_lock(tmp_path),
            pytest.raises(AlreadyRunning, match=f"pid {os.getpid()} runs"),
            services_lock(tmp_path),
        ):
            pass


async def test_daemons_of_a_killed_one_are_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "host" / "log" / "log.db"
    async with await Store.open(path):
        with pytest.raises(AlreadyRunning, match=r"host/log/log\.db"):
            await until_stores_are_free(tmp_path, 0.0)
    await until_stores_are_free(tmp_path, 0.0)
