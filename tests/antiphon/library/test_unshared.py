"""Runs on a system where one program at a time opens a folder, as on macOS."""

import asyncio
import socket
from typing import Any

import pytest

import antiphon
from antiphon.library.io import run_claim
from replica.conversation import key_digest
from replica.io.local import is_supported
from replica.io.store import Store
from tests.antiphon.library.conftest import Lab
from tests.antiphon.library.test_open_calls import act, reply

FORMS = ["async"]
PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def one_program_per_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_PEERCRED")
    assert not is_supported()


async def events_of(run: Any) -> list[type]:
    return [type(event) async for event in run]


async def test_a_run_under_a_key_has_its_answer_and_another_one_follows_it(talking: Lab):
    async with talking.open() as me, asyncio.timeout(PATIENCE_S):
        assert isinstance(me._replica.store, Store)
        trip = await me.conversation("trip")
        runs = [trip.run("Good morning.", key="job-17") for _ in range(2)]
        for found in await asyncio.gather(*map(events_of, runs)):
            assert found[0] is antiphon.Said and found[-1] is antiphon.Answered
        assert runs[0].answer == runs[1].answer
        assert (await trip.ask("Good morning.", key="job-17")).entry == runs[0].answer.entry
        key = trip.id + key_digest(me.key, "job-17")
        assert not me._replica.processes.is_claimed(key)


async def test_a_call_whose_run_has_ended_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_claim, "CLAIM_S", 0.05)
    await lab.start_host(reply)
    async with lab.open() as me, asyncio.timeout(PATIENCE_S):
        trip = await me.conversation("trip")
        run = trip.run("Act.", tools=[act])
        async for event in run:
            if isinstance(event, antiphon.ToolStarted):
                break
        await run.close()
        with pytest.raises(antiphon.CallOpen):
            await trip.ask("And now?")
