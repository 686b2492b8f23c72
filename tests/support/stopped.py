"""A process that is stopped, as by SIGSTOP: behind it, its clocks have gone on."""

import asyncio
import time
from types import ModuleType, SimpleNamespace

import pytest


def stop(monkeypatch: pytest.MonkeyPatch, seconds: float, *modules: ModuleType) -> None:
    """Let the clock of the running loop, and of modules that read it, jump."""
    loop = asyncio.get_running_loop()
    loop_time = loop.time
    monkeypatch.setattr(loop, "time", lambda: loop_time() + seconds)
    jumped = SimpleNamespace(monotonic=lambda: time.monotonic() + seconds)
    for module in modules:
        monkeypatch.setattr(module, "time", jumped)
