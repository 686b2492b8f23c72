"""Tools that close the replica which runs them: their call ends, and nobody waits for ever."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import aio
from antiphon.library.io import portal
from replica.errors import ReplicaClosed
from replica.io import require_free
from tests.antiphon.library.conftest import Lab
from tests.antiphon.library.test_run_news import reply

Close = Callable[[], None]


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """A hub with a host that calls the tool `act`."""
    made = Lab(tmp_path, "blocking")
    async with made.stack:
        await made.start_hub()
        await made.start_host(reply)
        yield made


def act(function: Callable[..., Any]) -> antiphon.Tool:
    return antiphon.tool(name="act", description="Act.")(function)


def here(close: Close) -> None:
    close()


def in_another_thread(close: Close) -> None:
    thread = threading.Thread(target=close)
    thread.start()
    thread.join()


@pytest.mark.parametrize("closed", [here, in_another_thread])
async def test_a_tool_that_closes_its_replica_ends_its_call(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, closed: Callable[[Close], None]
):
    """The tool ends first; the close that it waits for in another thread does not wait for it."""
    if closed is in_another_thread:
        monkeypatch.setattr(portal, "TOOLS_S", 0.1)
    ends = list[str]()

    def work() -> None:
        assert lab.hub is not None
        opening = antiphon.open(lab.folder / "me", hub=lab.hub.address)
        with opening as me:
            trip = me.conversation("trip")

            def stop() -> str:
                closed(lambda: opening.__exit__(None, None, None) and None)
                with pytest.raises(ReplicaClosed):
                    trip.say("Too late.")
                ends.append("the tool")
                return "stopped"

            with pytest.raises(ReplicaClosed):
                trip.ask("Act.", tools=[act(stop)])
            ends.append("the call")
        require_free(lab.folder / "me/log/log.db")
        with antiphon.open(lab.folder / "me", hub=lab.hub.address) as again:
            assert len(again.conversation("trip").open_calls()) == 1

    async with asyncio.timeout(60):
        await asyncio.to_thread(work)
    assert ends == ["the tool", "the call"]


async def test_an_async_tool_that_closes_its_replica_ends_its_call(lab: Lab):
    assert lab.hub is not None
    opening = aio.open(lab.folder / "me", hub=lab.hub.address)
    me = await opening.__aenter__()
    trip = await me.conversation("trip")

    async def stop() -> str:
        await opening.__aexit__(None, None, None)
        return "stopped"

    async with asyncio.timeout(60):
        with pytest.raises(ReplicaClosed):
            await trip.ask("Act.", tools=[act(stop)])


async def test_a_close_in_the_loop_of_the_blocking_form_is_refused(lab: Lab):
    def work() -> None:
        assert lab.hub is not None
        opening = antiphon.open(lab.folder / "me", hub=lab.hub.address)
        with opening as me:

            async def stop() -> str:
                opening.__exit__(None, None, None)
                return "stopped"

            trip = me.conversation("trip")
            trip.ask("Act.", tools=[act(stop)])
            done = [e.result for e in trip.history() if isinstance(e, antiphon.ToolDone)]
        assert done[0].startswith("LoopUnsuitable")
        require_free(lab.folder / "me/log/log.db")

    async with asyncio.timeout(60):
        await asyncio.to_thread(work)
