"""Settings a host is started with: it runs, or reports the error and the next step."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from io import FileIO, TextIOWrapper
from pathlib import Path
from typing import TextIO, cast

import pytest
from structlog import WriteLogger

from bench.pages import Memory
from model_host.engine.any_format import open_model
from model_host.engine.compute_threads import THREADS_MAX
from model_host.engine.torch_engine import TorchEngine
from model_host.errors import (
    ModelArchitectureUnknown,
    ModelFileInvalid,
    ModelFileTruncated,
    ModelTensorMissing,
    TokenizerUnknown,
)
from model_host.io.config import HostConfig
from model_host.io.fetch import resolve
from model_host.io.profiles.offers import make_offer
from model_host.io.server import start
from model_host.refusals import ContextTooLong, TemplateUnsupported
from replica.errors import AntiphonError
from replica.io import HubKeyUnknown, Store
from replica.io.process.daemon import Stderr
from replica.log.body import FinishReason
from replica.refusals import ArgumentInvalid, StoreLocked
from syncd.io.config import HubConfig
from syncd.io.server import start as start_hub
from tests.model_host.engine import tiny_folder, tiny_model
from tests.model_host.io.served_host import ServedHost
from tests.support.talk import Talk

ROOT = Path(__file__).parents[3]
UNREACHABLE = "127.0.0.1:1"


def truncated(path: Path) -> Path:
    tiny_model.write(path)
    path.write_bytes(path.read_bytes()[:5_000])
    return path


def another_kind(path: Path) -> Path:
    path.write_bytes(b"PK\x03\x04 not a model")
    return path


def of_one_token(path: Path) -> Path:
    return tiny_model.write(path, replace(tiny_model.LLAMA, context_tokens=1))


BAD_FILES: list[tuple[Callable[[Path], Path], type[AntiphonError]]] = [
    (truncated, ModelFileTruncated),
    (another_kind, ModelFileInvalid),
    (of_one_token, ModelFileInvalid),
    (lambda path: tiny_model.write(path, architecture="mamba"), ModelArchitectureUnknown),
    (lambda path: tiny_model.write(path, left_out="output_norm.weight"), ModelTensorMissing),
    (lambda path: tiny_model.write(path, pre="klingon"), TokenizerUnknown),
]


@pytest.mark.parametrize(("write", "kind"), BAD_FILES, ids=[kind.reason for _, kind in BAD_FILES])
async def test_a_host_does_not_start_on_a_model_it_can_not_run(
    tmp_path: Path, write: Callable[[Path], Path], kind: type[AntiphonError]
):
    model = write(tmp_path / "model.gguf")
    before = model.read_bytes()
    config = HostConfig(
        data_dir=tmp_path / "host", hub=UNREACHABLE, model=str(model), numerics="fp32"
    )
    with pytest.raises(kind) as caught:
        async with start(config):
            pass
    assert caught.value.next_step.endswith(".")
    assert model.read_bytes() == before
    # Nothing was left that would prevent a second start.
    assert not (tmp_path / "host" / "log").exists()
    with pytest.raises(kind):
        async with start(config):
            pass


async def test_a_second_host_on_a_folder_is_refused_before_its_model_is_read(tmp_path: Path):
    config = HostConfig(
        data_dir=tmp_path / "host", hub=UNREACHABLE, model=str(tmp_path / "none"), numerics="fp32"
    )
    async with await Store.open(tmp_path / "host" / "log" / "log.db"):
        with pytest.raises(StoreLocked):
            async with start(config):
                pass


def test_the_operator_gets_the_reason_and_the_next_step(tmp_path: Path):
    model = truncated(tmp_path / "cut.gguf")
    flags = ["--model", str(model), "--data-dir", str(tmp_path / "host"), "--hub", UNREACHABLE]
    command = [sys.executable, "-m", "model_host", "serve", *flags]
    ended = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    *_, said, then = ended.stderr.splitlines()
    assert said.startswith("python -m model_host serve: ")
    assert then == f"  next: {ModelFileTruncated.next_step} [{ModelFileTruncated.reason}]"


CHAT = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def test_a_model_folder_is_offered_like_a_file(tmp_path: Path):
    folder = tiny_folder.write(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(CHAT)
    assert resolve(str(folder)) == folder
    file = open_model(folder)
    offer = make_offer(file, numerics="fp32", context_tokens=8192, kv_bytes=1 << 30)
    assert offer.profile.name == "model"
    assert offer.profile.weights_digest == file.sha256
    assert offer.stop_ids == {tiny_model.TOKENS.index("<|end|>")}


@pytest.mark.parametrize("end", ["<|endoftext|>", "<|eom_id|>", "<|end_of_text|>"])
def test_a_turn_ends_with_each_control_token_that_models_end_with(tmp_path: Path, end: str):
    whole = tiny_folder.tokenizer_json()
    whole["added_tokens"][1]["content"] = end
    folder = tiny_folder.write(tmp_path / "model", tokenizer=whole)
    (folder / "chat_template.jinja").write_text(CHAT)
    offer = make_offer(open_model(folder), numerics="fp32", context_tokens=8192, kv_bytes=1 << 30)
    assert offer.stop_ids == {0, 1}


def test_a_turn_ends_with_each_token_that_the_model_lists(tmp_path: Path):
    folder = tiny_folder.write(tmp_path / "model", changed={"eos_token_id": [0, 1]})
    (folder / "chat_template.jinja").write_text(CHAT)
    offer = make_offer(open_model(folder), numerics="fp32", context_tokens=8192, kv_bytes=1 << 30)
    assert offer.stop_ids == {0, 1}


def test_a_model_without_a_chat_template_is_refused_for_that(tmp_path: Path):
    folder = tiny_folder.write(tmp_path / "base")
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(TemplateUnsupported, match="base has no chat template") as caught:
        make_offer(open_model(folder), numerics="fp32", context_tokens=8192, kv_bytes=1 << 30)
    assert "tuned for chat" in caught.value.next_step


@pytest.mark.usefixtures("own_cache")
async def test_a_model_with_a_name_that_no_hub_takes_is_served_under_a_shorter_one(
    tmp_path: Path, tiny_path: Path
):
    """The hub refused each greeting, so the host was ready and nobody found it."""
    like = replace(open_model(tiny_path), template=CHAT)
    model = tiny_model.write(tmp_path / "model.gguf", name="\x1b[2J\n" + "n" * 300, like=like)
    hub = await start_hub(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    config = HostConfig(
        data_dir=tmp_path / "host", hub=hub.address, model=str(model), numerics="fp32"
    )
    try:
        async with start(config) as host:
            assert await host.replica.wait_for(lambda: host.replica.hub.is_linked, 20)
            assert host.profile.name.startswith("?[2J nnn")
    finally:
        await hub.stop()


def test_a_full_log_file_does_not_stop_the_host(monkeypatch: pytest.MonkeyPatch):
    descriptor = os.open("/dev/full", os.O_WRONLY)
    with FileIO(descriptor, "w") as device:
        full = TextIOWrapper(device, write_through=True)
        monkeypatch.setattr(sys, "stderr", full)
        with pytest.raises(OSError, match="No space left"):
            WriteLogger(sys.stderr).warning("could not answer")
        WriteLogger(cast(TextIO, Stderr())).warning("could not answer")
        monkeypatch.undo()
        full.detach()


@pytest.mark.parametrize("setting", [{"context_tokens": 1}, {"context_tokens": -1}])
def test_a_context_too_short_for_an_answer_is_refused_before_anything_is_read(
    tmp_path: Path, setting: dict[str, int]
):
    with pytest.raises(ArgumentInvalid, match=r"context_tokens: .* has 2 at least"):
        TorchEngine.load(tmp_path / "no such file", **setting)


@pytest.mark.parametrize("threads", [-1, THREADS_MAX + 1])
def test_a_number_of_threads_out_of_bounds_is_refused_before_anything_is_read(
    tmp_path: Path, threads: int
):
    with pytest.raises(ArgumentInvalid, match=f"threads: {threads}; .* or 1 to {THREADS_MAX}$"):
        TorchEngine.load(tmp_path / "no such file", threads=threads)


def test_the_shortest_context_computes_like_a_longer_one(tiny: TorchEngine, tiny_path: Path):
    shortest = TorchEngine.load(tiny_path, numerics="fp32", threads=1, context_tokens=2)
    assert shortest.bitwise
    assert shortest.config.context_tokens == 2
    assert shortest.numerics_class == tiny.numerics_class
    memories = [Memory(engine) for engine in (tiny, shortest)]
    logits = [memory.compute(memory.pages(0), [5, 6]) for memory in memories]
    assert logits[0].tobytes() == logits[1].tobytes()


async def test_a_context_shorter_than_the_self_tests_canary_serves(
    served: ServedHost,
):
    file = served.engine.file
    short = TorchEngine.load(file, numerics="bf16", threads=1, context_tokens=64)
    assert short.numerics_class == served.engine.numerics_class
    async with served.host(short) as host:
        talk = await Talk.begin(served.replica, host.key)
        _, answer = await talk.ask("Write a very long story.", tokens=0, output_tokens_min=64)
        assert answer.finish_reason == FinishReason.CONTEXT_LIMIT
        used = answer.usage.prompt_tokens + len(answer.token_ids)
        assert used == 64
        _, refused = await talk.ask("And on.")
        assert refused.finish_detail.startswith(f"{ContextTooLong.reason}: ")


async def test_a_host_of_a_distant_hub_needs_its_key_before_a_model_is_read(
    tmp_path: Path, tiny: TorchEngine
):
    hub = await start_hub(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0, 127.0.0.2:0"))
    distant, known = hub.addresses[1], {"hub_key": hub.key.hex()}
    config = HostConfig(data_dir=tmp_path / "host", hub=distant, model="no such model", threads=1)
    try:
        with pytest.raises(HubKeyUnknown, match=distant):
            async with start(config):
                pass
        # Stated once, it is pinned.
        for stated in (config.model_copy(update=known), config):
            async with start(stated, tiny) as host:
                assert host.replica.hub.is_linked
    finally:
        await hub.stop()
