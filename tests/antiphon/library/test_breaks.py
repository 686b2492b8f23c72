"""Runs in the hands of careless programs: none hangs, and each error is one of the library."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import aio
from antiphon.library.io import run_claim
from antiphon.library.io.run_news import RunNews
from antiphon.library.tools import RESULT_BYTES_MAX, text_of_result
from replica.io import answers
from replica.io.requests.answer_errors import AnswerOverdue
from replica.log.body import ToolCall
from replica.refusals import ArgumentInvalid
from tests.antiphon.library.conftest import Lab
from tests.support.scripted_host import Asked, Token, words
from tests.support.stopped import stop


def reply(asked: Asked) -> list[Token | ToolCall]:
    """Call the tool `act`, and say its result."""
    if asked.said.startswith("Act"):
        return [ToolCall(asked.request_id.hex()[:8], "act", "{}")]
    return list(words(f"Heard: {asked.said}"))


@pytest.fixture
async def acting(lab: Lab) -> Lab:
    """A hub with a host that calls tools, for both forms."""
    await lab.start_host(reply)
    return lab


@pytest.fixture
async def one_form(tmp_path: Path) -> AsyncIterator[Lab]:
    """The same for tests that are written for one form."""
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        await lab.start_hub()
        await lab.start_host(reply)
        yield lab


def tool(function: Callable[..., Any], *, effect: bool = False) -> antiphon.Tool:
    return antiphon.tool(effect=effect, name="act", description="Act.")(function)


async def test_runs_under_one_key_in_one_process_are_one(acting: Lab):
    acted = []

    def act() -> str:
        acted.append(1)
        return "done"

    async with acting.open() as me:
        trip = await me.conversation("trip")
        answers = await asyncio.gather(
            *(trip.ask("Act.", tools=[tool(act)], key="job-17") for _ in range(3))
        )
        assert len({answer.entry for answer in answers}) == 1
        assert acted == [1]


async def test_a_run_of_a_silent_one_under_its_key_is_overdue(one_form: Lab):
    async with one_form.open() as me:
        trip = await me.conversation("trip")
        events = aiter(trip.run("Act.", key="job-17"))
        await anext(events)  # and nobody reads on
        with pytest.raises(AnswerOverdue, match="another run has the key"):
            await trip.ask("Act.", key="job-17", timeout_s=0.2)
        await events.aclose()


async def test_a_run_that_waits_looks_again_behind_a_stop(one_form: Lab, monkeypatch: Any):
    wait, waits = RunNews.wait, 0

    async def stopped(news: RunNews, timeout_s: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 1:
            stop(monkeypatch, 2 * answers.STOPPED_S, run_claim)
        await wait(news, timeout_s)

    monkeypatch.setattr(RunNews, "wait", stopped)
    async with one_form.open() as me:
        trip = await me.conversation("trip")
        events = aiter(trip.run("Act.", key="job-17"))
        await anext(events)  # and nobody reads on
        with pytest.raises(AnswerOverdue, match="another run has the key"):
            await trip.ask("Act.", key="job-17", timeout_s=0.3)
        await events.aclose()
    assert waits > 1


async def test_words_of_others_are_no_news_of_a_run_that_is_waited_for(one_form: Lab):
    async with one_form.open() as me:
        trip = await me.conversation("trip")
        events = aiter(trip.run("Act.", key="job-17"))
        await anext(events)  # and nobody reads on

        async def talk() -> None:
            while True:
                await trip.say("And another thing.")

        talking = asyncio.create_task(talk())
        with pytest.raises(AnswerOverdue, match="another run has the key"):
            async with asyncio.timeout(10):
                await trip.ask("Act.", key="job-17", timeout_s=0.3)
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
        await events.aclose()


async def test_a_run_that_nobody_reads_lets_another_go_on(
    acting: Lab, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_claim, "UNREAD_S", 0.05)
    acted = []
    act = tool(lambda: acted.append(1) or "done")
    async with acting.open() as me:
        trip = await me.conversation("trip")
        run = trip.run("Act.", tools=[act], key="job-17")
        events = aiter(run)
        first = await anext(events)  # and nobody reads on
        answer = await trip.ask("Act.", tools=[act], key="job-17", timeout_s=5.0)
        seen = [first, *[event async for event in events]]
        assert run.answer.entry == answer.entry
        assert acted == [1]
        done = [event.entry for event in seen if isinstance(event, antiphon.ToolDone)]
        assert len(done) == 1, "nothing is told twice"


async def test_a_call_that_was_started_keeps_its_run(
    one_form: Lab, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_claim, "UNREAD_S", 0.01)
    acted = []
    act = tool(lambda: acted.append(1) or "done", effect=True)
    async with one_form.open() as me:
        trip = await me.conversation("trip")
        run = trip.run("Act.", tools=[act], key="job-17")
        events = aiter(run)
        while not isinstance(await anext(events), antiphon.ToolStarted):
            pass
        with pytest.raises(AnswerOverdue, match="another run has the key"):
            await trip.ask("Act.", tools=[act], key="job-17", timeout_s=0.2)
        assert [event async for event in events]
        assert acted == [1]


ENDS: tuple[type[BaseException], ...] = (
    SystemExit, KeyboardInterrupt, asyncio.CancelledError, EOFError, GeneratorExit, MemoryError,
    RecursionError, StopAsyncIteration,
)  # fmt: skip


async def test_the_end_of_a_tool_ends_nothing_else(acting: Lab):
    def raising(kind: type[BaseException]) -> list[antiphon.Tool]:
        def act() -> str:
            raise kind

        async def act_in_loop() -> str:
            raise kind

        return [tool(act), tool(act_in_loop)]

    async with acting.open() as me:
        trip = await me.conversation("trip")
        for kind in ENDS:
            for one in raising(kind):
                assert kind.__name__ in (await trip.ask("Act.", tools=[one])).text


@contextmanager
def noting(steps: list[str]) -> Iterator[None]:
    """Note the next step of an error."""
    try:
        yield
    except antiphon.AntiphonError as error:
        steps.append(error.next_step)
        raise


async def test_a_tool_that_asks_behind_itself_is_told(acting: Lab):
    async with acting.open() as me:
        trip = await me.conversation("trip")
        plain, steps = getattr(trip, "inner", trip), []

        async def act_async() -> str:
            with noting(steps):
                return (await plain.ask("What is in it?")).text  # type: ignore[no-any-return]

        def act() -> str:
            with noting(steps):
                return plain.ask("What is in it?").text  # type: ignore[no-any-return]

        given = act_async if acting.form == "async" else act
        answer = await trip.ask("Act.", tools=[tool(given)])
        assert steps[0].startswith("Ask by `at(entry)`")
        assert answer.text.startswith("Heard: CallOpen: 'act' would wait for its own end")


async def test_a_policy_may_use_the_blocking_form(one_form: Lab):
    def work() -> int:
        assert one_form.hub is not None
        with antiphon.open(one_form.folder / "me", hub=one_form.hub.address) as me:
            trip, seen = me.conversation("trip"), []
            trip.ask("Hello.", policy=lambda _answer: seen.append(len(trip.history())))
            return seen[0]

    assert await asyncio.to_thread(work) == 2


async def test_a_run_is_closed_while_another_thread_reads_it(one_form: Lab):
    began, go_on = threading.Event(), threading.Event()

    def act() -> str:
        began.set()
        go_on.wait()
        return "done"

    def work() -> None:
        assert one_form.hub is not None
        with (
            ThreadPoolExecutor() as threads,
            antiphon.open(one_form.folder / "me", hub=one_form.hub.address) as me,
        ):
            trip = me.conversation("trip")
            run = trip.run("Act.", tools=[tool(act, effect=True)], key="job-17")
            readers = [threads.submit(run.result) for _ in range(2)]
            began.wait()
            closing = threads.submit(run.close)
            go_on.set()
            closing.result()
            for reader in readers:
                with pytest.raises(antiphon.RunUnfinished, match="closed"):
                    reader.result()
            # The tool that ran has ended, and its result is kept.
            assert trip.ask("Act.", key="job-17").text == "Heard: done"

    await asyncio.to_thread(work)


async def test_a_tool_in_a_thread_ends_before_the_run_that_was_cancelled(one_form: Lab):
    """Else the same run again would find a call that was started, and no effect of it yet."""
    began, go_on = asyncio.Event(), threading.Event()
    loop, effects = asyncio.get_running_loop(), list[str]()

    @antiphon.tool(effect=True, resolve=lambda key: "done" if key in effects else None)
    def act(effect_key: str) -> str:
        loop.call_soon_threadsafe(began.set)
        go_on.wait()
        effects.append(effect_key)
        return "done"

    assert one_form.hub is not None
    async with aio.open(one_form.folder / "me", hub=one_form.hub.address) as me:
        trip, other = await me.conversation("trip"), await me.conversation("other")
        asking = asyncio.create_task(trip.ask("Act.", tools=[act], key="job-17"))
        await began.wait()
        for _ in range(2):
            asking.cancel()
            await other.say("Durable behind the end of a run that does not wait for its tool.")
        is_kept = not asking.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert is_kept
        answer = await trip.ask("Act.", tools=[act], key="job-17")
        assert (answer.text, len(effects)) == ("Heard: done", 1)


async def test_a_loop_that_is_left_closes_its_run(acting: Lab):
    async with acting.open() as me:
        trip = await me.conversation("trip")
        act = antiphon.tool(name="act", effect=True, resolve=lambda _key: "done")(lambda: "unread")
        run = trip.run("Act.", tools=[act], key="job-17")
        async for event in run:
            if isinstance(event, antiphon.ToolStarted):
                break  # it runs once the next event is read
        with pytest.raises(antiphon.CallOpen):
            await trip.ask("Hello.")
        answer = await trip.ask("Act.", tools=[act], key="job-17")
        assert answer.text == "Heard: done"


@pytest.mark.parametrize("key", ["job-17", None])
async def test_a_run_that_was_left_says_how_to_go_on(acting: Lab, key: str | None):
    async with acting.open() as me:
        trip = await me.conversation("trip")
        run = trip.run("Hello.", key=key)
        async for event in run:
            if isinstance(event, antiphon.Asked):
                break
        await run.close()
        with pytest.raises(antiphon.RunUnfinished) as refused:
            await run.result()
        if key is not None:
            assert refused.value.next_step.startswith("Begin a new run with the same text and key")
            assert (await trip.ask("Hello.", key=key)).text == "Heard: Hello."
            return
        assert refused.match("without a key it can't go on; its question is in the log")
        assert refused.value.next_step.startswith("history() has the answer once it is there")
        await trip.ask("Another.")  # behind it
        assert "Heard: Hello." in [
            event.answer.text
            for event in await trip.history()
            if isinstance(event, antiphon.Answered)
        ]


async def test_a_run_that_was_closed_before_it_asked_is_begun_anew(acting: Lab):
    async with acting.open() as me:
        run = (await me.conversation("trip")).run("Hello.")
        with pytest.raises(antiphon.RunUnfinished) as refused:
            _ = run.answer
        assert refused.value.next_step == antiphon.RunUnfinished.next_step
        await run.close()
        with pytest.raises(antiphon.RunUnfinished, match="and asked nothing") as refused:
            _ = run.answer
        assert refused.value.next_step == "Begin a new run."


async def test_a_turn_that_waits_is_told_that_the_run_ahead_is_gone(
    acting: Lab, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_claim, "CLAIM_S", 0.05)
    monkeypatch.setattr(run_claim, "GONE_S", 0.2)
    began, go_on = threading.Event(), threading.Event()

    async def act() -> str:
        began.set()
        await asyncio.to_thread(go_on.wait)  # of another loop in the blocking form
        return "done"

    async with acting.open() as me, acting.open() as beside:
        trip, same = await me.conversation("trip"), await beside.conversation("trip")
        run = trip.run("Act.", tools=[tool(act)], key="job-17")
        working = asyncio.create_task(run.result())
        await asyncio.to_thread(began.wait)
        waiting = asyncio.create_task(same.ask("Hello.", key="job-18"))
        await acting.requests_at_host(trip.id, 2)
        early, _ = await asyncio.wait({waiting}, timeout=0.5)
        assert not early, "a run works on it"
        await run.close()
        with pytest.raises(antiphon.RunUnfinished):
            await working
        with pytest.raises(antiphon.CallOpen, match="this turn is in the log"):
            await waiting
        go_on.set()
        await trip.ask("Act.", tools=[tool(act)], key="job-17")
        assert (await same.ask("Hello.", key="job-18")).text == "Heard: Hello."


async def test_arguments_are_refused_before_anything_is_written(acting: Lab):
    async with acting.open() as me:
        trip = await me.conversation("trip")
        for given in ({"key": ""}, {"tools": ["act"]}):
            with pytest.raises((ArgumentInvalid, antiphon.ToolUnsuitable)):
                await trip.ask("Hello.", **given)
        with pytest.raises(ArgumentInvalid, match="no entry"):
            await trip.at(b"x" * 32).ask("Hello.")
        with pytest.raises(ArgumentInvalid, match="no request"):
            await trip.cancel(b"x" * 32)
        for wrong in (trip.invite(3), trip.invite("bob", role=2), me.join(b"code")):
            with pytest.raises(ArgumentInvalid, match="no text"):
                await wrong
        assert await trip.history() == ()


async def test_a_started_call_whose_tool_is_not_given_stays_open(acting: Lab):
    async with acting.open() as me:
        trip = await me.conversation("trip")
        run = trip.run("Act.", tools=[tool(lambda: "done", effect=True)], key="job-17")
        async for event in run:
            if isinstance(event, antiphon.ToolStarted):
                break
        await run.close()
        with pytest.raises(antiphon.CallOpen, match="was started"):
            await trip.ask("Act.", key="job-17")
        assert len(await trip.open_calls()) == 1


async def test_a_policy_returns_a_call_or_nothing(acting: Lab):
    async with acting.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(ArgumentInvalid, match="policy returns a Call or None, not 'act'"):
            await trip.ask("Hello.", policy=lambda _answer: "act")


def test_a_result_is_text_that_a_message_has_room_for():
    assert text_of_result("\ud800") == "?"
    long = text_of_result("é" * RESULT_BYTES_MAX)
    assert long.endswith(f"[cut here: the result has {2 * RESULT_BYTES_MAX:,} bytes]")
    assert len(long.encode()) < RESULT_BYTES_MAX + 64


INTERRUPTED = """
import sys, antiphon
with antiphon.open(sys.argv[1], hub=sys.argv[2]) as me:
    trip = me.conversation("trip")
    try:
        print("asking", flush=True)
        trip.ask("Wait.")
    except KeyboardInterrupt:
        print(len(trip.branches()), "interrupted", flush=True)
    try:
        for event in trip.run("Wait."):
            print(type(event).__name__, flush=True)
    except KeyboardInterrupt:
        print("and again", flush=True)
"""


async def test_an_interrupt_ends_the_call_it_interrupts(tmp_path: Path):
    """Its reason for 2 s: a process of its own, which imports gRPC."""
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        hub = await lab.start_hub()
        pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
        command = (sys.executable, "-c", INTERRUPTED, str(tmp_path / "me"), hub.address)

        async def never(_index: int) -> None:
            await asyncio.Event().wait()

        await lab.start_host(reply, pace=never)
        program = await asyncio.create_subprocess_exec(*command, **pipes)  # type: ignore[arg-type]
        assert program.stdout is not None and program.stderr is not None
        assert await program.stdout.readline() == b"asking\n"
        await lab.stack.enter_async_context(asyncio.timeout(20))
        program.send_signal(signal.SIGINT)
        assert (await program.stdout.readline()).endswith(b"interrupted\n")
        while await program.stdout.readline() != b"Asked\n":
            pass
        program.send_signal(signal.SIGINT)
        rest, errors = await program.communicate()
        assert rest.endswith(b"and again\n")
        assert errors == b"", os.fsdecode(errors)
        assert program.returncode == 0
