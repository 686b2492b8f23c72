"""An agent and its person's commands on one replica (DECISIONS D340)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import antiphon
from antiphon.cli.commands import doctor
from antiphon.cli.common.config import Settings
from antiphon.cli.common.session import Session
from antiphon.cli.views.output import Output
from tests.antiphon.cli.conftest import Terminal, World


def beside_an_agent(world: World, me: Terminal, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Do `work` with a replica that the library holds open."""

    async def open_and_work() -> Any:
        async with antiphon.aio.open(me.data_dir, hub=world.address, label="agent") as agent:
            return await work(agent)

    return world.background.run(open_and_work())


def test_a_person_and_an_agent_share_one_replica(world: World, me: Terminal) -> None:
    me.ok("new")

    async def work(agent: Any) -> tuple[str, str, dict[str, Any], str]:
        (trip,) = await agent.conversations()
        asked = asyncio.create_task(trip.ask("from the agent"))
        said = await asyncio.to_thread(me.ok, "send", "from the person")
        assert (await asked).text
        words = [event.text for event in await trip.history() if isinstance(event, antiphon.Said)]
        assert sorted(words) == ["from the agent", "from the person"]
        record = await asyncio.to_thread(me.record, "status")
        shown = await asyncio.to_thread(me.ok, "status")
        settings = Settings(data_dir=me.data_dir, hub=world.address)
        session = Session(settings, Output(as_json=True))
        found = [finding async for finding in doctor._store_hub_and_host(session)]
        return said, shown, record, found[0].detail

    said, shown, record, checked = beside_an_agent(world, me, work)
    assert "from the person" in said
    assert "(agent)" not in said
    assert shown.startswith("store through process ")
    assert record["store"].endswith(" (agent)")
    lines = [line.split() for line in me.ok("log").splitlines()]
    said_by_agent = next(n for n, line in enumerate(lines) if line[-2:] == ["the", "agent"])
    assert lines[said_by_agent + 1] == ["from", "agent"], lines
    labels = {one["text"]: one["label"] for one in me.records("log") if "label" in one}
    assert labels == {"from the agent": "agent", "from the person": None}
    assert record["hub"]["state"] == "linked"
    assert checked.startswith("is open through process")
    assert record["conversations"][0]["forks"] == []
    me.ok("verify")
    assert me.record("status")["store"] is None
