"""Memory of the engines for one test."""

from collections.abc import Iterator

import pytest

from model_host.engine.torch_engine import TorchEngine
from tests.model_host.engine.pages import Memory


@pytest.fixture
def memory(engine: TorchEngine) -> Iterator[Memory]:
    """The real model's, in each number format."""
    memory = Memory(engine)
    yield memory
    memory.close()


@pytest.fixture
def tiny_memory(tiny: TorchEngine) -> Iterator[Memory]:
    """The tiny model's."""
    memory = Memory(tiny)
    yield memory
    memory.close()
