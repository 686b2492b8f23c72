"""Texts of a model's files in names and errors: one line each, within bounds."""

from pathlib import Path

import numpy as np
import pytest

from model_host.engine.gguf_file import open_model_file
from model_host.engine.model_file import DETAIL_CHARACTERS_MAX, UNNAMED, name_from
from model_host.errors import ModelArchitectureUnknown
from replica.limits import HOST_TEXT_BYTES_MAX
from tests.model_host.engine import tiny_model

CONTROL = "\x1b[2J\nhost 127.0.0.1:1"


def test_a_name_is_a_line_that_a_hub_takes() -> None:
    assert name_from("Qwen2.5 0.5B Instruct", "file") == "Qwen2.5 0.5B Instruct"
    assert name_from(CONTROL) == "?[2J host 127.0.0.1:1"
    assert name_from(None, "file") == name_from(" \n", "file") == "file"
    assert name_from("", "\udcff") == "?"
    assert name_from(" ", "") == UNNAMED
    long = name_from("x" + "é" * 1_000_000)
    assert long == "x" + "é" * 127
    assert len(long.encode()) < HOST_TEXT_BYTES_MAX


def test_an_error_that_repeats_a_text_of_the_file_is_one_short_line(tmp_path: Path) -> None:
    extra = {f"evil {CONTROL} {'n' * 300_000}": np.zeros(4, np.float32)}
    path = tiny_model.write(tmp_path / "evil.gguf", extra=extra)
    with pytest.raises(ModelArchitectureUnknown, match="doesn't know the tensor evil") as caught:
        open_model_file(path)
    assert str(path) in caught.value.detail
    assert caught.value.detail.isprintable()
    assert len(caught.value.detail) <= DETAIL_CHARACTERS_MAX
