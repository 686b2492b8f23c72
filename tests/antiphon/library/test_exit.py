"""Programs that end, or fork, with a replica open; each is a process of its own, without a hub."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile

import pytest

import antiphon
from antiphon.library.io.portal import entered
from replica.io import require_free
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.forked import Forks

END_S = 100.0
"""Time in which a program that can end has ended; a busy machine takes 50 s to start one."""


async def started(code: str, *given: object, pipes: tuple[int, ...] = ()) -> Process:
    """Start a program with a folder for its replica, further words, and pipes."""
    # Python warns since 3.12 of a fork beside threads, which the library has.
    quiet = ("-W", "ignore:This process:DeprecationWarning")
    command = [sys.executable, *quiet, "-c", "import antiphon, os, sys, threading\n" + code]
    return await asyncio.create_subprocess_exec(
        *command, *map(str, given), stdin=PIPE, stdout=PIPE, stderr=PIPE, pass_fds=pipes
    )


FORKS = Forks("antiphon.aio", "antiphon.library.io.local")


async def output_of(code: str, *given: object) -> tuple[list[str], str, int]:
    """Return the lines of a program that has to end, its errors and its exit code."""
    lines = "import antiphon, os, sys, threading\n" + code
    argv = ["tests.support.snippet", lines, *map(str, given)]
    with ExitStack() as files:
        nothing, printed, errors = (files.enter_context(TemporaryFile()) for _ in range(3))
        streams = (nothing.fileno(), printed.fileno(), errors.fileno())
        program = FORKS.start(argv, os.environ, streams)
        try:
            status = await asyncio.to_thread(program.wait, END_S)
        finally:
            program.kill()
        texts = [os.pread(one.fileno(), 1 << 20, 0).decode() for one in (printed, errors)]
    return texts[0].splitlines(), texts[1], status


WITHOUT_DESCRIPTORS = """
import resource
with antiphon.open(sys.argv[1]):  # all modules are loaded
    unable = antiphon.StoreError
limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
try:
    with antiphon.open(sys.argv[1]):
        print("opened")
except unable as error:
    print(error, "|", error.next_step)
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
with antiphon.open(sys.argv[1]):
    print("opened")
"""


async def test_a_program_without_a_free_descriptor_is_told(tmp_path: Path):
    """It waited for ever: the thread of the replica had ended without a word."""
    printed, _, code = await output_of(WITHOUT_DESCRIPTORS, tmp_path)
    assert printed == [
        "[Errno 24] Too many open files | Close files, or raise the limit of open files"
        " (`ulimit -n`), and try again.",
        "opened",
    ]
    assert code == 0


INTERRUPTED_START = """
import signal
antiphon.open  # its modules are loaded
starts = []

def interrupt(*_):
    if not starts:
        starts.append(os.kill(os.getpid(), signal.SIGINT))

threading.settrace(interrupt)
with antiphon.open(sys.argv[1]):
    pass
"""


async def test_ctrl_c_while_the_thread_of_a_replica_starts_ends_the_program(tmp_path: Path) -> None:
    _, errors, status = await output_of(INTERRUPTED_START, tmp_path)
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert errors.count("Traceback") == 1
    assert status


def test_ctrl_c_while_a_context_is_entered_undoes_what_was_entered() -> None:
    undone = list[str]()

    @asynccontextmanager
    async def opening() -> AsyncIterator[None]:
        try:
            os.kill(os.getpid(), signal.SIGINT)  # the main thread waits
            await asyncio.Event().wait()
            yield
        finally:
            await asyncio.to_thread(undone.append, "first")
            await asyncio.to_thread(undone.append, "second")

    with pytest.raises(KeyboardInterrupt), entered(opening(), lambda _portal, inner: inner):
        pass
    assert undone == ["first", "second"]


def require_closed(folder: Path) -> None:
    """Require that a store was closed, and not only left."""
    require_free(folder / "log/log.db")
    assert not (folder / "log/log.db.sock").exists()


CELL = """
opening = antiphon.open(sys.argv[1])
me = opening.__enter__()
me.conversation("notes").say("Kept.")
raise ValueError("a cell fails")
"""
IN_THREADS = """
from concurrent.futures import ThreadPoolExecutor
threads = ThreadPoolExecutor()
openings = [antiphon.open(f"{sys.argv[1]}/{name}") for name in "ab"]
me = threads.submit(openings[0].__enter__).result()
thread = threading.Thread(target=openings[1].__enter__)
thread.start()
thread.join()
print(me.conversation("notes").say("Kept.").hex())
"""
AT_WORK = """
def work():
    with antiphon.open(sys.argv[1]) as me:
        opened.set()
        threading.main_thread().join()
        print(len(me.conversation("notes").say("Kept.")))
opened = threading.Event()
threading.Thread(target=work).start()
opened.wait()
"""
CLOSED_LOOP = """
import asyncio
from antiphon.library.io.tool_calls import called
async def work():
    async with antiphon.aio.open(sys.argv[1]) as me:
        await (await me.conversation("notes")).say("Kept.")
        await called(str)  # a plain tool
        loop.stop()
        await asyncio.Event().wait()
loop = asyncio.new_event_loop()
working = loop.create_task(work())
loop.run_forever()
loop.close()
print("the last line")
"""


async def test_a_program_that_fails_with_a_replica_open_ends(tmp_path: Path):
    """Its reason for 1 s, as for those below: a process that imports the library."""
    _, errors, code = await output_of(CELL, tmp_path)
    assert (errors.splitlines()[-1], code) == ("ValueError: a cell fails", 1)
    require_closed(tmp_path)


async def test_what_threads_have_opened_is_closed_behind_them(tmp_path: Path):
    printed, errors, code = await output_of(IN_THREADS, tmp_path)
    assert (len(printed), errors, code) == (1, "", 0)
    for name in "ab":
        require_closed(tmp_path / name)


async def test_a_thread_that_still_works_keeps_its_replica(tmp_path: Path):
    assert await output_of(AT_WORK, tmp_path) == (["32"], "", 0)
    require_closed(tmp_path)


async def test_a_program_whose_loop_was_closed_ends(tmp_path: Path):
    printed, _, code = await output_of(CLOSED_LOOP, tmp_path)
    assert (printed, code) == (["the last line"], 0)
    async with antiphon.aio.open(tmp_path) as me:
        assert len(await (await me.conversation("notes")).history()) == 1


CANCELLED_AT_ONCE = """
import asyncio
async def bot(name):
    async with antiphon.aio.open(sys.argv[1], hub=sys.argv[2]) as me:
        notes = await me.conversation(name)
        await notes.say("Kept.")
        try:
            ready.release()
            await asyncio.Event().wait()
        finally:
            print(len(await notes.say("Bye.")), await notes.sync())
async def main():
    global ready, bots, opening
    ready, bots = asyncio.Semaphore(0), [asyncio.create_task(bot(name)) for name in "ab"]
    for _ in bots:
        await ready.acquire()
    opening = antiphon.aio.open(sys.argv[1] + "/left open", hub=sys.argv[2])
    await opening.__aenter__()
asyncio.run(main())
"""


async def test_bots_that_asyncio_run_cancels_end_in_order(tmp_path: Path):
    """The second one shares the first one's store; asyncio.run cancels the replicas' tasks too."""
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    try:
        printed, errors, code = await output_of(CANCELLED_AT_ONCE, tmp_path / "me", hub.address)
    finally:
        await hub.stop()
    assert (printed, errors, code) == (["32 True"] * 2, "", 0)
    for name in ("me", "me/left open"):
        require_closed(tmp_path / name)


CHILD = """
with antiphon.open(sys.argv[1]) as me:
    notes = me.conversation("notes")
    child = os.fork()
    if not child:
        try:
            notes.say("Of the child.")
        except antiphon.AntiphonError as error:
            print(error.reason, error, flush=True)
        sys.exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(len(notes.say("Of the parent.")))
"""
LINKED = """
with antiphon.open(sys.argv[1], hub="127.0.0.1:1") as me:
    pass
child = os.fork()
if not child:
    try:
        antiphon.open(sys.argv[1] + "-child", hub="127.0.0.1:1").__enter__()
    except antiphon.AntiphonError as error:
        print(error.reason, flush=True)
    with antiphon.open(sys.argv[1] + "-child") as mine:
        print(len(mine.key), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
KILLED = """
with antiphon.open(sys.argv[1]) as me:
    me.conversation("notes").say("Kept.")
    print("open", flush=True)
    sys.stdin.read(1)
    if not os.fork():
        print("forked", flush=True)
        os.closerange(0, 3)  # what is waited for is the end of the parent alone
        os.read(int(sys.argv[2]), 1)
        os._exit(0)
    threading.Event().wait()
"""


async def test_a_forked_child_is_told_to_open_its_own(tmp_path: Path):
    printed, errors, code = await output_of(CHILD, tmp_path)
    assert (errors, code) == ("", 0)
    assert printed[0].startswith("REPLICA_CLOSED it was opened by the process that forked this one")
    assert printed[1:] == ["3", "32"]


async def test_a_child_of_a_linked_process_is_told_that_it_can_have_no_link(tmp_path: Path):
    printed, _grpc_on_the_fork, code = await output_of(LINKED, tmp_path)
    assert (printed, code) == (["PROCESS_FORKED", "32"], 0)


COMPUTING = """
with antiphon.open(sys.argv[1], hub=sys.argv[2]) as me:
    me.conversation("notes").say("To the hub.")
    ended = []
    for _ in range(60):
        child = os.fork()
        if not child:
            os._exit(0)
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(me.is_linked, set(ended))
"""


async def test_children_of_a_linked_process_that_only_compute_end_well(tmp_path: Path):
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    printed, errors, code = await output_of(COMPUTING, tmp_path / "me", hub.address)
    await hub.stop()
    assert (printed, errors, code) == (["True {0}"], "", 0)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Process]:
    """Start KILLED, which holds the store now; its child goes on until the end."""
    reader, writer = os.pipe()
    try:
        program = await started(KILLED, folder, reader, pipes=(reader,))
        assert program.stdout is not None
        assert await program.stdout.readline() == b"open\n"
        yield program
    finally:
        os.close(reader)
        os.close(writer)


async def kill_behind_fork(program: Process) -> None:
    """Let a program fork, and kill it."""
    assert program.stdin is not None and program.stdout is not None
    program.stdin.write(b".")
    assert await program.stdout.readline() == b"forked\n"
    program.kill()
    await program.communicate()


async def test_a_child_of_a_killed_process_keeps_nothing_locked(tmp_path: Path):
    async with serving(tmp_path) as program:
        await kill_behind_fork(program)
        async with antiphon.aio.open(tmp_path) as me:
            assert len(await (await me.conversation("notes")).history()) == 1


async def test_another_process_goes_on_beside_a_child_of_a_killed_one(tmp_path: Path):
    async with serving(tmp_path) as program, antiphon.aio.open(tmp_path) as me:
        notes = await me.conversation("notes")
        await kill_behind_fork(program)
        async with asyncio.timeout(END_S):
            await notes.say("Of the other.")
        assert len(await notes.history()) == 2
