"""The real model, loaded once per numerics, and a tiny one."""

import os
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

import pytest

from model_host.engine.gguf_file import open_model_file
from model_host.engine.model_file import ModelFile
from model_host.engine.tokenizer import Tokenizer
from model_host.engine.torch_engine import TorchEngine
from replica.io.replica import Replica
from syncd.io.config import HubConfig
from syncd.io.server import start as start_hub
from tests.model_host.engine import tiny_model
from tests.model_host.io.served_host import ServedHost
from tests.support.talk import key_of

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def _cache_dir() -> Path:
    return Path(os.environ.get("ANTIPHON_CACHE_DIR") or "~/.cache/antiphon").expanduser()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests on the real model in one process, so that it loads once."""
    for item in items:
        if "model_path" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("model"))


@pytest.fixture(scope="session")
def model_path() -> Path:
    path = _cache_dir() / "models" / MODEL
    if not path.is_file():
        pytest.fail(f"{path} is missing: run `make model`, or set ANTIPHON_CACHE_DIR.")
    return path


@pytest.fixture(scope="session")
def model_file(model_path: Path) -> ModelFile:
    return open_model_file(model_path)


@pytest.fixture(scope="session")
def engine_of(model_path: Path) -> Callable[[str], TorchEngine]:
    """The real model in the numerics named; a shorter context keeps the self-test short."""

    @cache
    def load(numerics: str) -> TorchEngine:
        return TorchEngine.load(
            model_path, numerics=numerics, threads=2, cache_dir=_cache_dir(), context_tokens=2048
        )

    return load


@pytest.fixture(params=["q4", "bf16", "fp32"])
def engine(request: pytest.FixtureRequest, engine_of: Callable[[str], TorchEngine]) -> TorchEngine:
    """The real model in all numerics."""
    return engine_of(request.param)


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> TorchEngine:
    """The tiny model in fp32."""
    return TorchEngine.load(tiny_path, numerics="fp32", threads=2)


@pytest.fixture(scope="session")
def tokenizer(model_file: ModelFile) -> Tokenizer:
    return Tokenizer.build(model_file.tokenizer)


@pytest.fixture
async def served(
    tmp_path: Path, engine_of: Callable[[str], TorchEngine]
) -> AsyncIterator[ServedHost]:
    hub = await start_hub(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    path = tmp_path / "replica" / "log.db"
    async with Replica.open(path, key_of(1), hub.address) as replica:
        yield ServedHost(tmp_path, engine_of("bf16"), hub, replica)
    await hub.stop()
