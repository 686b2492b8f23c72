"""Compile the template of the first frame on stdin, then render what the others ask for.

The system ends this process where that takes too much time, memory or stack.
"""

import json
import resource
import signal
import sys
from typing import Any

from model_host.template_process import LENGTH_BYTES, MEMORY_BYTES_MAX, OUT_OF_MEMORY
from model_host.template_sandbox import Sandbox, TemplateFault

DIGITS_MAX = 4_300
"""Digits of a number that a template may read or write: Python's own default."""


def main() -> int:
    """Serve until stdin ends; return the exit status."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.set_int_max_str_digits(DIGITS_MAX)  # the environment may say otherwise
    try:
        _serve()
    except MemoryError:
        return OUT_OF_MEMORY
    return 0


def _count_time(cpu_s: float) -> None:
    """Let the system end this process after some CPU time, that of its own calls included."""
    # Who started it may ignore or block the signal, which is inherited.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    signal.setitimer(signal.ITIMER_PROF, cpu_s)


def _serve() -> None:
    arguments = _read()
    cpu_s = arguments.pop("cpu_s")
    _count_time(cpu_s)
    try:
        sandbox = Sandbox(**arguments)
    except TemplateFault as fault:
        _write({"problem": str(fault)})
        return
    _write({"text": ""})
    while asked := _read():
        if asked["again"]:
            _count_time(cpu_s)
        try:
            _write({"text": sandbox.render(asked["messages"], header=asked["header"])})
        except TemplateFault as fault:
            _write({"problem": str(fault)})


def _read() -> dict[str, Any]:
    """Return the next frame, an empty one at the end."""
    length = sys.stdin.buffer.read(LENGTH_BYTES)
    frame = sys.stdin.buffer.read(int.from_bytes(length, "little"))
    read: dict[str, Any] = json.loads(frame or b"{}")
    return read


def _write(answer: dict[str, str]) -> None:
    frame = json.dumps(answer).encode()
    sys.stdout.buffer.write(len(frame).to_bytes(LENGTH_BYTES, "little") + frame)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
