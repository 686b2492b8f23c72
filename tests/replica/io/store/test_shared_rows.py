"""Small rows that several processes change, and the one process that asks for newcomers."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from replica.ids import PublicKey
from replica.io import petnames
from replica.io.conversations.invitations import HubClaim
from replica.io.driver.replica import Replica
from replica.refusals import StoreLocked
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.writers import Writer

KEY = Writer(1).key


async def test_two_processes_name_keys_at_once(tmp_path: Path) -> None:
    async with (
        Replica.open(tmp_path / "s", KEY, shared=True) as first,
        Replica.open(tmp_path / "s", KEY, shared=True) as second,
    ):
        wanted = {PublicKey(bytes([n] * 32)): f"name {n}" for n in range(20)}
        await asyncio.gather(
            *(
                petnames.set_name((first, second)[n % 2], key, name)
                for n, (key, name) in enumerate(wanted.items())
            )
        )
        assert await petnames.names(first.store) == wanted


async def test_one_process_asks_a_hub_for_newcomers(tmp_path: Path) -> None:
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(hub.stop)
        away = await stack.enter_async_context(Replica.open(tmp_path / "s", KEY, shared=True))
        assert not HubClaim(away).is_held()
        linked = []
        for _ in range(2):
            opening = Replica.open(tmp_path / "s", KEY, hub.address, shared=True)
            linked.append(await stack.enter_async_context(opening))
        first, second = (HubClaim(one) for one in linked)
        for one in linked:
            await one.wait_for(lambda one=one: one.hub.is_linked, 10.0)  # type: ignore[misc]
        assert first.is_held()
        assert not second.is_held()
        assert first.is_held()
        first.release()
        assert second.is_held()
        assert not first.is_held()
        second.release()


async def test_a_locked_store_names_its_holder(tmp_path: Path) -> None:
    async with Replica.open(tmp_path / "s", KEY):
        with pytest.raises(StoreLocked, match=f"process {os.getpid()} holds"):
            async with Replica.open(tmp_path / "s", KEY):
                pass
