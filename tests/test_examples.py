"""The examples run, on a real hub and a scripted host."""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replica.log.body import ToolCall
from tests.antiphon.library.conftest import Lab
from tests.support.forked import Forks
from tests.support.forked_program import ForkedProgram
from tests.support.scripted_host import Asked, Token, words

EXAMPLES = Path(__file__).parents[1] / "examples"
AGENTS = Forks(  # and what the library imports when it is used
    "anyio._backends._asyncio", "grpc.aio", "antiphon.library.io.blocking",
    "antiphon.library.io.local", "antiphon.library.io.replica", "replica.document.projection",
    "replica.io.driver.replica",
)  # fmt: skip
KILLS = 10
AGENT_LINES_MAX = 45


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        await lab.start_hub()
        yield lab


async def started(name: str, *arguments: object, **env: str) -> asyncio.subprocess.Process:
    """Start an example."""
    return await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLES / name, *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        cwd=EXAMPLES.parent,
        env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent), **env},
    )  # fmt: skip


async def output_of(name: str, *arguments: object, **env: str) -> list[str]:
    """Run an example to its end; return the lines it printed."""
    process = await started(name, *arguments, **env)
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode().splitlines()


def planner(asked: Asked) -> list[Token | ToolCall]:
    """Look at the weather, book, and say so."""
    number = asked.request_id.hex()[:8]
    if asked.said.startswith("Book"):
        return [ToolCall(f"{number}-0", "weather", '{"city": "Rome"}')]
    if asked.said.startswith("sunny"):
        return [ToolCall(f"{number}-0", "book", '{"city": "Rome", "nights": 2}')]
    return list(words(f"All is {asked.said}."))


async def test_an_agent_killed_ten_times_goes_on(lab: Lab, tmp_path: Path):
    assert len((EXAMPLES / "agent.py").read_text().splitlines()) <= AGENT_LINES_MAX
    assert lab.hub is not None
    chance, folder = random.Random(1), tmp_path / "agent"
    host = await lab.start_host(planner)
    for _ in range(KILLS):
        argv = ["examples.agent", str(folder), lab.hub.address]
        with ForkedProgram(AGENTS, argv, os.environ) as agent:
            for _ in range(chance.randrange(1, 4)):
                await asyncio.to_thread(agent.stdout.readline)
            agent.kill()
            await asyncio.to_thread(agent.wait)
    lines = await output_of("agent.py", folder, lab.hub.address)
    assert lines[-1] == "done: All is booked."
    assert len((folder / "bookings.txt").read_text().splitlines()) == 1
    assert host.answered == 3  # weather, book, done: nothing was asked twice


async def test_two_agents_read_one_conversation(lab: Lab, tmp_path: Path):
    await lab.start_host()
    assert lab.hub is not None
    argv = ["examples.two_agents", str(tmp_path), lab.hub.address]
    with ForkedProgram(AGENTS, argv, os.environ) as agents:
        printed, _ = await asyncio.to_thread(agents.communicate)
        assert agents.wait() == 0
    lines = printed.splitlines()
    assert {"ada said: What comes first?", "bob said: What comes last?"} <= {*lines}
    assert sum(line.startswith("answer: You said:") for line in lines) == 2


async def test_a_bot_follows_the_conversations_it_is_granted(lab: Lab, tmp_path: Path):
    assert lab.hub is not None
    bot = await started("bot.py", tmp_path / "bot", lab.hub.address)
    assert bot.stdout is not None
    key = bytes.fromhex((await bot.stdout.readline()).decode().split()[1])
    async with lab.open() as me:
        trip = await me.conversation("trip")
        await trip.grant(key)  # type: ignore[arg-type]
        assert (await bot.stdout.readline()).decode().startswith("member")
        events = trip.events()
        await trip.say("Hello.")
        assert (await bot.stdout.readline()).decode() == "noted Hello.\n"
        async for event in events:
            if getattr(event, "text", "") == "Noted: Hello.":
                break
    bot.kill()
    await bot.communicate()


async def test_a_notebook_has_a_hub_and_a_host_of_its_own(tmp_path: Path):
    module = "tests.support.scripted_host"
    lines = await output_of("notebook.py", tmp_path, ANTIPHON_HOST_MODULE=module)
    assert lines[0].startswith("You said: Name a colour.")
    assert lines[-1] == "2 branches"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_without_arguments_says_how_it_is_run(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)},
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode in (1, 2)
    assert name in done.stderr
    assert "Traceback" not in done.stderr
