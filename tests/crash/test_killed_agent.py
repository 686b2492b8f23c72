"""A program killed at any write goes on: one message, one effect, one answer."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replica.log.body import ToolCall
from tests.antiphon.library.conftest import Lab
from tests.crash import killed_agent, whole_program
from tests.support.scripted_host import Asked, Token, words

FEWEST_WRITES = 20
"""Names, genesis, title, two turns, start and result of the tool, a branch, an invitation."""


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        await lab.start_hub()
        await lab.start_host(booker)
        yield lab


def booker(asked: Asked) -> list[Token | ToolCall]:
    """Book where it is asked for."""
    if asked.said == whole_program.JOB:
        return [ToolCall(asked.request_id.hex()[:8], "book", '{"city": "Paris", "nights": 2}')]
    return list(words(f"So it is {asked.said}."))


@pytest.mark.parametrize("form", ["async", "blocking"])
async def test_an_agent_killed_at_any_commit_goes_on(lab: Lab, tmp_path: Path, form: str) -> None:
    assert lab.hub is not None
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", killed_agent.__name__, form, str(tmp_path / "agents"),
        lab.hub.address, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, _ = await process.communicate()
    assert process.returncode == 0
    lines = printed.decode().splitlines()
    ends = {line.partition(": ")[2] for line in lines}
    assert ends == {"So it is booked. 1 job, a code, 1 booking"}
    assert len(lines) >= FEWEST_WRITES
