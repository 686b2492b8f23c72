"""The real model, loaded once per numerics, and small ones.

Where a test's subject is the host or the arithmetic, and not what the real weights say, it
runs a model of few random weights through the same engine (DECISIONS D345).
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Kind

from model_host.engine.gguf_file import open_model_file
from model_host.engine.model_file import ModelFile
from model_host.engine.tokenizer import Tokenizer
from model_host.engine.torch_engine import TorchEngine
from replica.io.driver.replica import Replica
from syncd.io.config import HubConfig
from syncd.io.server import start as start_hub
from tests.model_host.engine import tiny_model
from tests.model_host.engine.loading import cache_dir, load_random
from tests.model_host.io.served_host import ServedHost
from tests.support.talk import key_of

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
EngineOf = Callable[[str], TorchEngine]
"""Returns the engine of the numerics named."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests on the real model in one process, so that it loads once; the wide one too."""
    groups = {"engine_of": "model", "wide_of": "wide"}
    for item in items:
        used = [groups[name] for name in getattr(item, "fixturenames", ()) if name in groups]
        if used:
            item.add_marker(pytest.mark.xdist_group(used[0]))


def layers_in_four_bits(name: str) -> Kind | None:
    """Return the quantisation of a tensor where the layers have four bits."""
    return Kind.Q4_1 if name.startswith("blk.") and "norm" not in name else None


@pytest.fixture(scope="session")
def model_path() -> Path:
    path = cache_dir() / "models" / MODEL
    if not path.is_file():
        pytest.fail(f"{path} is missing: run `make model`, or set ANTIPHON_CACHE_DIR.")
    return path


@pytest.fixture(scope="session")
def model_file(model_path: Path) -> ModelFile:
    return open_model_file(model_path)


@pytest.fixture(scope="session")
def engine_of(model_path: Path) -> EngineOf:
    """The real model in the numerics named; a shorter context keeps the self-test short."""

    @cache
    def load(numerics: str) -> TorchEngine:
        return TorchEngine.load(
            model_path, numerics=numerics, threads=1, cache_dir=cache_dir(), context_tokens=2048
        )

    return load


@pytest.fixture(params=["q4", "bf16", "fp32"])
def engine(request: pytest.FixtureRequest, engine_of: EngineOf) -> TorchEngine:
    """The real model in all numerics."""
    return engine_of(request.param)


@pytest.fixture(scope="session")
def small_of(model_file: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> EngineOf:
    """A model with the real one's tokenizer and template, and two narrow, random layers."""
    config = replace(
        tiny_model.LLAMA,
        vocab=model_file.config.vocab,
        context_tokens=model_file.config.context_tokens,
        tied=True,
    )
    path = tmp_path_factory.mktemp("small") / "small.gguf"
    tiny_model.write(path, config, kind_of=layers_in_four_bits, like=model_file)

    @cache
    def load(numerics: str) -> TorchEngine:
        return load_random(path, numerics, context_tokens=2048)

    return load


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> TorchEngine:
    """The tiny model in fp32."""
    return load_random(tiny_path, "fp32")


@pytest.fixture(scope="session")
def tokenizer(model_file: ModelFile) -> Tokenizer:
    return Tokenizer.shared(model_file.tokenizer)


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cache folder for all tests on tiny models, so that a model's self-test runs once."""
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "profiles"))


@pytest.fixture
async def served(tmp_path: Path, small_of: EngineOf) -> AsyncIterator[ServedHost]:
    """A hub, a reader and hosts of the small model."""
    async with _served(tmp_path, small_of("bf16")) as made:
        yield made


@pytest.fixture
async def served_real(tmp_path: Path, engine_of: EngineOf) -> AsyncIterator[ServedHost]:
    """A hub, a reader and hosts of the real model."""
    async with _served(tmp_path, engine_of("bf16")) as made:
        yield made


@asynccontextmanager
async def _served(folder: Path, engine: TorchEngine) -> AsyncIterator[ServedHost]:
    hub = await start_hub(HubConfig(data_dir=folder / "hub", listen="127.0.0.1:0"))
    path = folder / "replica" / "log.db"
    async with Replica.open(path, key_of(1), hub.address) as replica:
        yield ServedHost(folder, engine, hub, replica)
    await hub.stop()
