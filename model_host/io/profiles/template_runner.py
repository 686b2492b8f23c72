"""Runs a chat template in a process of its own, within bounds of time and memory (D586)."""

import json
import os
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress

from model_host.errors import RenderingInterrupted
from model_host.refusals import TemplateUnsupported
from model_host.template_process import CPU_S_MAX, LENGTH_BYTES, OUT_OF_MEMORY
from model_host.template_sandbox import Messages
from replica.errors import HostError
from replica.io import python

WALL_S_MAX = 60.0
"""Time in which the process must answer. CPU time is limited more tightly, and ends it before."""
ENDING_S = 1.0
"""Time between the end of a process's output and its own."""

ATTEMPTS = 2
"""Processes that are tried for one rendering."""

_COSTLY = "the template takes too much time, memory or stack"
_COSTLY_ENDS = {
    OUT_OF_MEMORY,
    -signal.SIGPROF,  # of its timer
    -signal.SIGSEGV,  # of its stack
    -signal.SIGBUS,
    -signal.SIGABRT,  # by itself, where memory ends at a place that can't fail
}
"""The ends of a process that are due to its template, which each further process would meet."""
_ABSENT = "The process that runs chat templates does not run here."


class _Ended(Exception):  # it is tried again
    """A process was ended by others, or does not answer."""


class TemplateRunner:
    """One template, in a process that is started when it is needed."""

    def __init__(self, source: str, *, bos_token: str, eos_token: str) -> None:
        """Prepare to run `source`; `loaded` ends the time that is bounded as a whole."""
        self._arguments: dict[str, object] = {
            "source": source,
            "bos_token": bos_token,
            "eos_token": eos_token,
        }
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        """The process that has compiled the template."""
        self._started: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[..., TemplateRunner] | None = None
        self._is_loading = True
        self._is_costly = False
        self._interrupts = 0

    def render(self, messages: Messages, *, header: bool) -> str:
        """Return the text for messages.

        Any thread may call this. Once the system has ended the process at load, all is refused.
        Raises TemplateUnsupported, RenderingInterrupted, or HostError.
        """
        with self._lock:
            if self._is_loading and self._is_costly:
                raise TemplateUnsupported(_COSTLY, is_costly=True)
            again = not self._is_loading
            return self._rendered({"messages": messages, "header": header, "again": again})

    def loaded(self) -> None:
        """End the process; from now on each context has its own time.

        Raises TemplateUnsupported where the load took too much.
        """
        with self._lock:
            self._stop()
            self._is_loading = False
            if self._is_costly:
                raise TemplateUnsupported(_COSTLY, is_costly=True)

    def interrupt(self) -> None:
        """End the process, without a wait for whom it renders for now: that fails."""
        self._interrupts += 1
        process = self._started
        if process is not None:
            process.kill()

    def _rendered(self, frame: Mapping[str, object]) -> str:
        """Return the text that a frame asks for, from another process where one was ended."""
        before = self._interrupts
        for _ in range(ATTEMPTS):
            with suppress(_Ended):
                process = self._process or self._start()
                if self._interrupts == before:
                    return self._ask(process, frame)
            if self._interrupts != before:
                break
        raise RenderingInterrupted

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start the process. Raises TemplateUnsupported where the template does not compile.

        Raises _Ended, HostError.
        """
        self._stop()  # one in which it did not compile
        try:
            process = subprocess.Popen(  # noqa: S603  # our own module
                python("-m", "model_host.template_process"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        except OSError as error:
            raise HostError(_ABSENT) from error
        self._started = process
        self._end = weakref.finalize(self, _kill, process)
        self._ask(process, self._arguments | {"cpu_s": CPU_S_MAX})
        self._process = process
        return process

    def _stop(self) -> None:
        if self._end is not None:
            self._end()
        self._process = self._started = self._end = None

    def _ask(self, process: "subprocess.Popen[bytes]", frame: Mapping[str, object]) -> str:
        """Send a frame and return the text of its answer.

        Raises TemplateUnsupported, _Ended, HostError.
        """
        data = json.dumps(frame).encode()
        deadline = time.monotonic() + WALL_S_MAX
        try:
            _write(process, len(data).to_bytes(LENGTH_BYTES, "little") + data, deadline)
            length = int.from_bytes(_read(process, LENGTH_BYTES, deadline), "little")
            answer: dict[str, str] = json.loads(_read(process, length, deadline))
        except (EOFError, BrokenPipeError, TimeoutError) as error:
            failure = _failure_of(process)
            self._is_costly = isinstance(failure, TemplateUnsupported)
            self._stop()
            raise failure from error
        except BaseException:  # of whoever waits for it: the next answer would be this one's
            self._stop()
            raise
        if "problem" in answer:
            raise TemplateUnsupported(answer["problem"])
        return answer["text"]


def _write(process: "subprocess.Popen[bytes]", data: bytes, deadline: float) -> None:
    """Write all bytes. Raises BrokenPipeError, TimeoutError."""
    assert process.stdin is not None, "it is a pipe"
    descriptor, view = process.stdin.fileno(), memoryview(data)
    os.set_blocking(descriptor, False)  # a process that is stopped reads nothing
    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)
    while view:
        _wait(ready, deadline)
        with suppress(BlockingIOError):
            view = view[os.write(descriptor, view) :]


def _read(process: "subprocess.Popen[bytes]", count: int, deadline: float) -> bytes:
    """Return so many bytes of the process. Raises EOFError, TimeoutError."""
    assert process.stdout is not None, "it is a pipe"
    descriptor, data = process.stdout.fileno(), bytearray()
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    while len(data) < count:
        _wait(ready, deadline)
        part = os.read(descriptor, count - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _wait(ready: select.poll, deadline: float) -> None:
    """Wait until a pipe is ready, or broken. Raises TimeoutError."""
    left_s = deadline - time.monotonic()
    if left_s <= 0 or not ready.poll(left_s * 1000):
        raise TimeoutError


def _failure_of(process: "subprocess.Popen[bytes]") -> TemplateUnsupported | HostError | _Ended:
    """Return why a process does not answer."""
    try:
        status = process.wait(timeout=ENDING_S)
    except subprocess.TimeoutExpired:
        return _Ended()
    if status in _COSTLY_ENDS:
        return TemplateUnsupported(_COSTLY, is_costly=True)
    return HostError(_ABSENT) if status in (1, 2) else _Ended()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(BrokenPipeError):
            if pipe is not None:
                pipe.close()
