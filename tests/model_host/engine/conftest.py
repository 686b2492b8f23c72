"""Memory of the engines for one test."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from bench.pages import Memory
from model_host.engine.model_file import ModelFile
from model_host.engine.torch_engine import TorchEngine
from tests.model_host.conftest import EngineOf, layers_in_four_bits
from tests.model_host.engine import tiny_model
from tests.model_host.engine.loading import load_random
from tests.model_host.engine.prefilled import Prefilled, PrefilledOf


@pytest.fixture(scope="session")
def wide_of(model_file: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> EngineOf:
    """Two random layers of the real model's widths, hence with its kernels and shapes."""
    config = replace(model_file.config, layers=2, vocab=tiny_model.LLAMA.vocab)
    path = tmp_path_factory.mktemp("wide") / "wide.gguf"
    tiny_model.write(path, config, kind_of=layers_in_four_bits)

    @cache
    def load(numerics: str) -> TorchEngine:
        return load_random(path, numerics, context_tokens=2048)

    return load


@pytest.fixture(scope="session")
def prefilled_of(engine_of: EngineOf) -> PrefilledOf:
    """The golden file's long prompt on the real model, in the numerics named."""

    @cache
    def compute(numerics: str) -> Prefilled:
        return Prefilled.compute(engine_of(numerics))

    return compute


@pytest.fixture(params=["q4", "bf16", "fp32"])
def memory(request: pytest.FixtureRequest, wide_of: EngineOf) -> Iterator[Memory]:
    """That of the wide model, in each number format."""
    memory = Memory(wide_of(request.param))
    yield memory
    memory.close()


@pytest.fixture
def real_memory(engine: TorchEngine) -> Iterator[Memory]:
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
