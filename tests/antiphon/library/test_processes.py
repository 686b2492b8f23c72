"""Processes of one folder: one of them is killed while the other is in the middle of an answer."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import antiphon
from replica.io import Store
from replica.log import Kind
from replica.refusals import StoreLocked
from tests.antiphon.library.conftest import Lab

OTHER = """
import sys, antiphon
with antiphon.open(sys.argv[1], hub=sys.argv[2], label="other") as me:
    me.conversation("trip")
    print("open", flush=True)
    sys.stdin.read()
"""


async def opened_elsewhere(folder: Path, address: str) -> asyncio.subprocess.Process:
    """Start a process that holds the folder."""
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER, str(folder), address,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert other.stdout is not None
    assert await other.stdout.readline() == b"open\n"
    return other


@contextmanager
def stopped(process: asyncio.subprocess.Process) -> Iterator[None]:
    """Stop a process meanwhile, as Ctrl-Z does."""
    process.send_signal(signal.SIGSTOP)
    # It stops once one of its threads, the first if it can, has run for the signal.
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


async def test_a_run_waits_no_longer_than_it_says_for_a_process_that_is_stopped(
    tmp_path: Path,
) -> None:
    """Its reason for 3 s: a process of its own, and the time that one which runs may take."""
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        hub = await lab.start_hub()
        await lab.start_host()
        other = await opened_elsewhere(tmp_path / "me", hub.address)
        async with antiphon.aio.open(tmp_path / "me", hub=hub.address) as me:
            trip = await me.conversation("trip")
            for timeout_s in (None, 0.0):  # one that runs is waited for whatever is said
                await trip.ask("Are you there?", timeout_s=timeout_s, key="job-16")
            late = rf"process {other.pid} .* for 1.0 s"
            with stopped(other), pytest.raises(StoreLocked, match=late):
                async with asyncio.timeout(10):
                    await trip.ask("Are you there?", timeout_s=0.2, key="job-17")
            assert (await trip.ask("Are you there?", key="job-17")).text
            other.kill()
            await other.wait()


async def test_a_killed_process_interrupts_no_answer_of_another(tmp_path: Path) -> None:
    """Its reason for 2 s: a process of its own, which imports gRPC."""
    lab, reached, go_on = Lab(tmp_path, "async"), asyncio.Event(), asyncio.Event()

    async def pace(index: int) -> None:
        if index == 1:
            reached.set()
            await go_on.wait()

    async with lab.stack:
        hub = await lab.start_hub()
        await lab.start_host(pace=pace)
        other = await opened_elsewhere(tmp_path / "me", hub.address)
        async with antiphon.aio.open(tmp_path / "me", hub=hub.address) as me:
            trip = await me.conversation("trip")
            asked = asyncio.create_task(trip.ask("one two three", key="job-17"))
            await reached.wait()
            other.kill()
            await other.wait()
            go_on.set()
            answer = await asked
            assert (await trip.ask("and then")).text
            assert await me.sync()
            conversation = trip.id
    async with await Store.open(tmp_path / "me" / "log" / "log.db") as store:
        entries = (await store.load(conversation)).entries
    assert answer.entry in {entry.id for entry in entries}
    assert sum(entry.header.kind == Kind.GENERATION for entry in entries) == 2
