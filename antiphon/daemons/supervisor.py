"""A hub and a model host as child processes: started, watched, restarted, stopped.

Each daemon prints one ready line on stdout, `hub ADDRESS KEY [ADDRESS …]` or
`host ADDRESS KEY PROFILE[, PROFILE …] DIGEST`, and its log on stderr, which goes to a file.
Only processes started here are ever signalled. Stdin is an empty pipe. If this
process ends or is killed, the pipe closes, and the daemon stops as on SIGTERM.
The hub keeps its address over a restart, so that replicas can reconnect. It
vouches for the host, so the host's key is created before the hub starts.
"""

import asyncio
import os
import signal
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from antiphon.daemons.errors import DaemonFailed, HostKeyElsewhere, HostNotInstalled
from antiphon.daemons.services_lock import services_lock, until_stores_are_free
from replica.ids import PublicKey, short
from replica.io import FILE_MODE, keys, make_folder, missing_host_packages, python
from replica.log import public_key

READY_TIMEOUT_S = 300.0
"""Includes dequantising a model and testing its shapes on a small machine."""
STOP_TIMEOUT_S = 10.0
BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 30.0
STEADY_S = 60.0
"""Run time after which the backoff of a daemon is reset."""
LOG_LINES_SHOWN = 8
HOST_MODULE = "model_host"
STOP_AT_EOF = "ANTIPHON_STOP_AT_EOF"
"""Variable that makes a daemon stop at the end of stdin; unset when run by hand."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ready:
    """The fields of a daemon's ready line."""

    address: str
    key: PublicKey
    words: tuple[str, ...] = ()
    """Further fields: a hub's other addresses; a host's profiles, and the default's digest."""


class Daemon:
    """One child process, at most one at a time."""

    def __init__(self, name: str, log_file: Path, argv: Callable[[], Sequence[str]]) -> None:
        """Describe a daemon; its ready line begins with `name`; each start calls `argv`."""
        self.name = name
        self.log_file = log_file
        self.starts = 0
        self._argv = argv
        self._process: asyncio.subprocess.Process | None = None
        self._ready: Ready | None = None

    @property
    def ready(self) -> Ready:
        """The fields of the ready line; only after `start`."""
        assert self._ready is not None, "start() comes first"
        return self._ready

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> Ready:
        """Start the process and wait for its ready line. Raises DaemonFailed."""
        assert self.pid is None, "a daemon is started once at a time"
        make_folder(self.log_file.parent)
        with self._opened_log() as log:
            self._process = await self._spawn(self._argv(), os.environ | {STOP_AT_EOF: "1"}, log)
        self.starts += 1
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                self._ready = await self._read_ready(self._process)
        except TimeoutError as error:
            await self.stop()
            raise DaemonFailed(
                f"the {self.name} was not ready in {READY_TIMEOUT_S:.0f} s; log: {self.log_file}"
            ) from error
        except BaseException:
            await self.stop()
            raise
        return self._ready

    def _opened_log(self) -> BinaryIO:
        """Open the log, behind what an earlier start of ours wrote, for this user alone."""
        how = os.O_APPEND if self.starts else os.O_TRUNC
        log = os.fdopen(os.open(self.log_file, os.O_WRONLY | os.O_CREAT | how, FILE_MODE), "wb")
        if stat.S_ISREG(os.fstat(log.fileno()).st_mode):
            os.fchmod(log.fileno(), FILE_MODE)  # one that is there may be open to others
        return log

    async def _spawn(
        self, argv: Sequence[str], environment: Mapping[str, str], log: BinaryIO
    ) -> asyncio.subprocess.Process:
        # A session of its own, so that Ctrl-C reaches only us and we stop daemons in order.
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,
        )

    async def _read_ready(self, process: asyncio.subprocess.Process) -> Ready:
        assert process.stdout is not None, "stdout is a pipe"
        while line := (await process.stdout.readline()).decode(errors="replace"):
            word, *rest = line.split()
            if word == self.name and len(rest) >= 2:
                return Ready(rest[0], PublicKey(bytes.fromhex(rest[1])), tuple(rest[2:]))
        code = await process.wait()
        raise DaemonFailed(
            f"the {self.name} ended with code {code} before it was ready; log: {self.log_file}"
        )

    async def wait(self) -> int:
        """Wait until the process ends; return its exit code."""
        assert self._process is not None, "start() comes first"
        return await self._process.wait()

    async def kill(self) -> None:
        """Kill the process at once, as a crash or `kill -9` would."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Send SIGTERM and wait; kill the process if it does not end."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        if not self.log_file.is_file():
            return ""
        with self.log_file.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES_SHOWN:])


@dataclass(slots=True)
class Supervisor:
    """Both daemons of one machine; `async with` stops them at the end."""

    data_dir: Path
    """Folder of hub/, host/ and logs/."""
    hub_port: int = 0
    listen: str = ""
    """A further address of the hub, host:port, served with TLS; empty for none."""
    models: tuple[str, ...] = ()
    """Models that the host offers, the first as the default; none for the host's own choice."""
    numerics: str | None = None
    host_module: str = HOST_MODULE
    operator: PublicKey | None = None
    """A key that may see all running requests of the host."""
    report: Report = print
    hub: Daemon = field(init=False)
    host: Daemon = field(init=False)
    _host_key: PublicKey | None = field(init=False, default=None)
    _hub_key_of_host: PublicKey | None = field(init=False, default=None)
    """The key of the hub with which the host was last started."""
    _held: ExitStack = field(init=False, default_factory=ExitStack)
    _keepers: list[asyncio.Task[None]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Describe both daemons without starting them."""
        self.data_dir = self.data_dir.expanduser()
        logs = self.data_dir / "logs"
        self.hub = Daemon("hub", logs / "hub.log", self._hub_argv)
        self.host = Daemon("host", logs / "host.log", self._host_argv)

    def _hub_argv(self) -> list[str]:
        addresses = [f"127.0.0.1:{self.hub_port}", *([self.listen] if self.listen else [])]
        if self.hub.starts:
            addresses = [self.hub.ready.address, *self.hub.ready.words]
        assert self._host_key is not None, "_start() reads it"
        return python(
            "-m", "syncd", "--data-dir", str(self.data_dir / "hub"),
            "--listen", ",".join(addresses), "--host-key", self._host_key.hex(),
        )  # fmt: skip

    def _host_argv(self) -> list[str]:
        hub = self.hub.ready  # another key than before is no stranger's: it is that of our own hub
        self._hub_key_of_host = hub.key
        argv = python(
            "-m", self.host_module, "serve", "--hub", hub.address,
            "--hub-key", hub.key.hex(), "--data-dir", str(self.data_dir / "host"),
        )  # fmt: skip
        for model in self.models:
            argv += ["--model", model]
        argv += ["--operator-key", self.operator.hex()] if self.operator else []
        return argv + (["--numerics", self.numerics] if self.numerics else [])

    def check_host(self) -> None:
        """Raise HostNotInstalled if packages are missing; what another module needs it says."""
        if self.host_module == HOST_MODULE and (missing := missing_host_packages()):
            raise HostNotInstalled(f"not installed: {', '.join(missing)}")

    async def __aenter__(self) -> "Supervisor":
        """Start both, the hub first. Raises AlreadyRunning, DaemonFailed or a StoreError.

        HostNotInstalled and HostKeyGone are of these. On an error neither is left running.
        """
        self.check_host()
        with ExitStack() as held:
            held.enter_context(services_lock(self.data_dir))
            await until_stores_are_free(self.data_dir, STOP_TIMEOUT_S)
            try:
                await self._start()
            except BaseException:
                await self.stop()
                raise
            self._held = held.pop_all()
        return self

    async def _start(self) -> None:
        # The host's own key file: created here if the host has not created it yet.
        folder = self.data_dir / "host"
        identity = folder / "identity.key"
        key = keys.load_or_begin(identity, folder / "log" / "log.db", is_host=True)
        self._host_key = public_key(key)
        await self.hub.start()
        ready = await self.host.start()
        if ready.key != self._host_key:
            raise HostKeyElsewhere(f"the host's key is not the one in {identity}")

    async def __aexit__(self, *_error: object) -> None:
        """Stop both."""
        with self._held:
            await self.stop()

    def keep_alive(self) -> None:
        """Restart a daemon whenever it ends by itself, from now on."""
        self._keepers = [
            asyncio.create_task(self._keep(daemon), name=f"keep {daemon.name}")
            for daemon in (self.hub, self.host)
        ]

    async def failed(self) -> None:
        """Wait until a daemon can't be restarted, and raise the error."""
        await asyncio.gather(*self._keepers)

    async def stop(self) -> None:
        """End the restarts, then the host, then the hub."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self._keepers = []
        await self.host.stop()
        await self.hub.stop()

    async def _keep(self, daemon: Daemon) -> None:
        backoff_s = BACKOFF_FIRST_S
        while True:
            began = time.monotonic()
            code = await daemon.wait()
            if time.monotonic() - began > STEADY_S:
                backoff_s = BACKOFF_FIRST_S
            self.report(
                f"the {daemon.name} ended ({_exit_words(code)}); again in {backoff_s:.1f} s"
            )
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
            try:
                ready = await daemon.start()
            except DaemonFailed as error:
                self.report(f"{error.detail}\n{daemon.log_tail()}")
            except OSError as error:  # there is no process, or no log, to be had at the moment
                self.report(f"the {daemon.name} can't be started: {error}")
            else:
                self.report(f"the {daemon.name} is back at {ready.address}, pid {daemon.pid}")
                await self._bring_host_to(ready)

    async def _bring_host_to(self, ready: Ready) -> None:
        """End a host that knows the hub by an earlier key; its keeper starts it with this one."""
        if ready is not self.hub.ready or ready.key == self._hub_key_of_host:
            return
        self.report(
            f"the hub has another key, {short(ready.key)}; clients of the earlier one run"
            " `antiphon hub trust`; the host is started again with it"
        )
        await self.host.stop()


def _exit_words(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return signal.Signals(-code).name
    return f"code {code}"
