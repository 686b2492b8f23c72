"""The threads of the blocking form: which loops go on, and that nothing of a replica does."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import antiphon
from antiphon.library.io import loop_thread
from antiphon.library.io.portal import Portal
from tests.antiphon.library.conftest import Lab
from tests.antiphon.library.test_breaks import reply, tool
from tests.antiphon.library.test_exit import output_of


async def loop_of() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@pytest.fixture
def with_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops are kept, whatever this process has used before."""
    monkeypatch.setattr(loop_thread, "uses_grpc", lambda: True)


async def test_replicas_with_a_hub_that_follow_each_other_have_one_loop(tmp_path: Path):
    lab = Lab(tmp_path, "blocking")
    async with lab.stack:
        hub = await lab.start_hub()

        def work() -> set[asyncio.AbstractEventLoop]:
            seen = set[asyncio.AbstractEventLoop]()
            for _ in range(5):
                with antiphon.open(tmp_path / "me", hub=hub.address) as me:
                    assert me.sync()
                    seen.add(me._portal.call(loop_of))
            return seen

        (loop,) = await asyncio.to_thread(work)
        assert not loop.is_closed()


@pytest.mark.usefixtures("with_grpc")
def test_replicas_that_are_open_at_once_have_a_loop_each(tmp_path: Path):
    with antiphon.open(tmp_path / "a") as one, antiphon.open(tmp_path / "b") as other:
        assert one._portal.call(loop_of) is not other._portal.call(loop_of)


def test_without_grpc_a_thread_ends_with_its_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loop_thread, "uses_grpc", lambda: False)
    before = threading.active_count()
    with antiphon.open(tmp_path) as me:
        loop = me._portal.call(loop_of)
    assert loop.is_closed()
    assert threading.active_count() <= before


@pytest.mark.usefixtures("with_grpc")
def test_what_a_replica_leaves_in_its_loop_ends_with_it(capfd: pytest.CaptureFixture[str]):
    ended = list[str]()
    begun, held = threading.Event(), threading.Event()

    async def items() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            ended.append("iteration")

    async def for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("task")

    def in_thread() -> None:
        begun.set()
        held.wait()
        ended.append("thread")

    kept = list[object]()

    async def leave_behind() -> None:
        iteration = items()
        await anext(iteration)
        task = asyncio.create_task(for_ever())
        thread = asyncio.create_task(asyncio.to_thread(in_thread))
        kept.extend([iteration, task, thread])
        await asyncio.sleep(0)

    portal = Portal()
    loop = portal.call(loop_of)
    portal.call(leave_behind)
    begun.wait()
    closing = threading.Thread(target=portal.close)
    closing.start()
    held.set()
    closing.join()
    assert {*ended} == {"task", "iteration", "thread"}
    assert not loop.is_closed()
    again = Portal()
    assert again.call(loop_of) is loop
    assert again.call(asyncio.to_thread, str) == ""
    again.close()
    assert capfd.readouterr().err == ""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_replica_ends_by_itself_where_something_else_has_stopped_its_loop():
    """The tasks that it needs for that were cancelled with it, and its folder stayed locked."""
    ended = list[str]()

    async def function() -> None:
        is_ending = asyncio.Event()

        async def help_end() -> None:
            await is_ending.wait()
            ended.append("helper")

        helper = asyncio.create_task(help_end())
        asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)
        try:
            await asyncio.Event().wait()
        finally:
            is_ending.set()
            await helper
            ended.append("function")

    loop_thread.run(function).wait()
    assert ended == ["helper", "function"]


@pytest.mark.usefixtures("with_grpc")
def test_what_fails_as_its_replica_ends_is_reported(caplog: pytest.LogCaptureFixture):
    async def fail() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("at the end")

    kept = list[object]()

    async def leave_behind() -> None:
        kept.append(asyncio.create_task(fail()))
        await asyncio.sleep(0)

    portal = Portal()
    portal.call(leave_behind)
    portal.close()
    assert "a task that its replica has ended has failed" in caplog.text
    assert "ValueError: at the end" in caplog.text


@pytest.mark.usefixtures("with_grpc")
def test_a_finalizer_closes_a_replica_while_another_thread_is_given_a_loop():
    """The collector runs anywhere, also where a thread is taken for the next replica."""
    portal = Portal()

    def close() -> None:
        with loop_thread._Kept.lock:
            portal.close()

    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()


async def test_an_async_tool_may_use_the_blocking_form_of_another_replica(tmp_path: Path):
    """Each replica that is open has a loop of its own, so none waits for itself."""
    lab = Lab(tmp_path, "blocking")
    async with lab.stack:
        hub = await lab.start_hub()
        await lab.start_host(reply)

        def work() -> str:
            with (
                antiphon.open(tmp_path / "a", hub=hub.address) as one,
                antiphon.open(tmp_path / "b", hub=hub.address) as other,
            ):
                theirs = other.conversation("theirs")

                async def act() -> str:
                    return theirs.ask("What is there?").text

                return one.conversation("ours").ask("Act.", tools=[tool(act)]).text

        async with asyncio.timeout(60):
            assert await asyncio.to_thread(work) == "Heard: Heard: What is there?"


LEFT = """
from antiphon.library.io import loop_thread
loop_thread.uses_grpc = lambda: True
opening = antiphon.open(sys.argv[1] + "/a")
me = opening.__enter__()
with antiphon.open(sys.argv[1] + "/b"):
    pass
print([one.name for one in threading.enumerate()].count("antiphon"), flush=True)
def work():
    with antiphon.open(sys.argv[1] + "/c") as mine:
        opened.set()
        threading.main_thread().join()
        print(len(mine.conversation("notes").say("Kept.")), flush=True)
opened = threading.Event()
threading.Thread(target=work).start()
opened.wait()
"""
FORKED = """
from antiphon.library.io import loop_thread
loop_thread.uses_grpc = lambda: True
with antiphon.open(sys.argv[1]):
    pass
child = os.fork()
if not child:
    with antiphon.open(sys.argv[1]) as me:
        print(len(me.conversation("notes").say("Of the child.")), flush=True)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with antiphon.open(sys.argv[1]) as me:
    print(len(me.conversation("notes").history()))
"""


async def test_a_program_ends_with_a_loop_that_waits_and_with_one_at_work(tmp_path: Path):
    printed, errors, code = await output_of(LEFT, tmp_path)
    assert (printed, errors, code) == (["2", "32"], "", 0)


async def test_a_forked_child_begins_without_the_loops_of_its_parent(tmp_path: Path):
    printed, errors, code = await output_of(FORKED, tmp_path)
    assert (printed, errors, code) == (["32", "3", "1"], "", 0)
