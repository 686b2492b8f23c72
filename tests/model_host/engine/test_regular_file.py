"""Paths of models that name no regular file: refused at once, by a typed error."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from model_host.engine.any_format import open_model
from model_host.engine.kept_verdicts import KeptVerdicts
from model_host.engine.regular_file import open_regular
from model_host.engine.weights_cache import WeightsCache
from model_host.errors import ModelFileMissing
from tests.model_host.engine import tiny_folder, tiny_model

PATIENCE_S = 20.0
IN_FOLDER = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _folder(path: Path) -> None:
    path.mkdir()


OTHERS: list[Callable[[Path], object]] = [os.mkfifo, _device, _folder]


def in_time(work: Callable[[], object]) -> Exception | None:
    """Return the error of a call, which may wait for nobody."""
    raised: list[Exception | None] = []

    def run() -> None:
        try:
            work()
        except (ModelFileMissing, OSError) as error:
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert raised, "it waits for ever"
    return raised[0]


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"some bytes")
    link.symlink_to(path)
    for each in (path, link):
        with open_regular(each) as file:
            assert file.read() == b"some bytes"
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


@pytest.mark.parametrize("make", [os.mkfifo, _device])
def test_what_is_no_file_is_no_model(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "model.gguf"
    make(path)
    error = in_time(lambda: open_model(path))
    assert isinstance(error, ModelFileMissing)
    assert error.detail == f"{path} can't be read: it is no regular file."


@pytest.mark.parametrize("name", IN_FOLDER)
@pytest.mark.parametrize("make", OTHERS)
def test_what_is_no_file_is_no_file_of_a_model_s_folder(
    tmp_path: Path, name: str, make: Callable[[Path], object]
) -> None:
    folder = tmp_path / "model"
    tiny_folder.write(folder)
    path = folder / name
    path.unlink(missing_ok=True)
    make(path)
    error = in_time(lambda: open_model(folder))
    assert isinstance(error, ModelFileMissing)
    assert error.detail == f"{path} can't be read: it is no regular file."


def test_a_file_that_became_a_pipe_since_it_was_opened_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tiny_model.write(path)
    file = open_model(path)
    path.unlink()
    os.mkfifo(path)
    error = in_time(lambda: file.tensors.read("output_norm.weight"))
    assert isinstance(error, ModelFileMissing)
    assert error.detail == f"{path} can't be read: it is no regular file."


def test_a_pipe_in_the_cache_is_not_waited_for(tmp_path: Path) -> None:
    weights, verdicts = WeightsCache(tmp_path, 0), KeptVerdicts(tmp_path)
    for path in (weights._path("key"), weights._path("other"), verdicts._path(bytes(32))):
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
    assert in_time(lambda: weights.read("key")) is None
    assert in_time(lambda: weights.write("key", {})) is None
    assert in_time(lambda: verdicts.read(bytes(32))) is None
