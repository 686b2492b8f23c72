"""Hosts that compute no further for a while."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from unittest import mock

from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import Logits, Slice
from model_host.io.threads.engine_thread import EngineThread

PATIENCE_S = 60.0


@contextmanager
def held_after(steps: int) -> Iterator[threading.Event]:
    """Let hosts wait after so many steps, until the event is set, the block ends, or one stops.

    An answer is in progress for as long as a test looks at it, however fast the model is. A host
    that stops computes the step that it waits in, and no other.
    """
    step, stop = TorchEngine.step, EngineThread.stop
    done, goes_on = count(), threading.Event()

    def held(engine: TorchEngine, batch: Sequence[Slice]) -> list[Logits]:
        if next(done) >= steps:
            assert goes_on.wait(PATIENCE_S), "the test lets no host go on"
        return step(engine, batch)

    def stop_and_go_on(thread: EngineThread) -> None:
        stop(thread)
        goes_on.set()

    with (
        mock.patch.object(TorchEngine, "step", held),
        mock.patch.object(EngineThread, "stop", stop_and_go_on),
    ):
        try:
            yield goes_on
        finally:
            goes_on.set()
