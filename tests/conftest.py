"""What every test leaves behind as it found it."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
import structlog
from _pytest.runner import runtestprotocol
from hypothesis import settings
from typer import main, testing

from replica.imports import uncollected
from tests.support.compiled import compile_share

ROOT = Path(__file__).parents[1]
MODULES = ("tests", "antiphon", "replica", "syncd", "model_host", "spec", "bench")

# A thread of torch that waits for another must not keep a core busy: beside other processes
# this made tests ten times slower (DECISIONS D346). Torch reads it when it is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Processes of this project do not search the working directory for modules (DECISIONS D600).
os.environ["PYTHONPATH"] = str(ROOT)

MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 << 30  # a whole run needs 0.2 GiB; hubs under test refuse to fill their disk


def keeps_files_in_memory() -> bool:
    """Say whether folders of tests belong in memory, which runs programs and has room for them."""
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return False
    runs_programs = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    room = shutil.disk_usage(MEMORY).free >= ROOM_BYTES
    return runs_programs and room and os.access(MEMORY, os.W_OK)


# A commit waits 4 ms for a disk, in a third of all tests' time. Tests end processes, not the
# power: what a killed process has written survives it in memory as on a disk (DECISIONS D377).
if keeps_files_in_memory():
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# A shell ignores SIGINT for what it runs in the background, and nohup SIGHUP; processes under test
# inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A daemon that runs in a test shows a traceback as one that configures its log does. By itself
# structlog shows all locals too, laid out in tables, in 50 ms for each bug that a test plants.
structlog.get_config()["processors"][-1].exception_formatter = structlog.dev.plain_traceback

# A runner builds the tree of all sixty commands for each call, in half of the call's time.
testing._get_command = cache(main.get_command)

# A deadline measures the machine, not the code: beside other work it is missed now and then.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in its own hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that share a fixture of their file in one process, which makes it once."""
    for item in items:
        found = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
        own = (fixtures[-1] for fixtures in found.values())
        shares = any(one.scope == "module" and one.baseid == _file_of(item) for one in own)
        if shares and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_file_of(item)))


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Spare the collector the modules and tests, half a million objects, in each full pass."""
    with uncollected():
        worker = getattr(session.config, "workerinput", None)
        if worker is not None:
            number = int(worker["workerid"].removeprefix("gw"))
            folders = [ROOT / name for name in MODULES]
            compile_share(session.config, number, worker["workercount"], folders)
        found = yield
        gc.collect()
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Send the controller of pytest-xdist no reports that it does not show.

    Those of setups and teardowns that passed are most of what distributing a test costs.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Undo what commands run in this process say of logging: others look at what is logged."""
    try:
        return (yield)
    finally:
        structlog.reset_defaults()
