"""What a model's files state in texts and numbers, whatever their format."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_host.engine.gguf_file import open_model_file
from model_host.engine.hf_folder import open_folder
from model_host.engine.model_file import DETAIL_CHARACTERS_MAX, UNNAMED, name_from
from model_host.errors import ModelArchitectureUnknown, ModelFileInvalid
from replica.limits import HOST_TEXT_BYTES_MAX
from tests.model_host.engine import tiny_folder, tiny_model

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


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"max_position_embeddings": 1}, "context"),
        ({"sliding_window": 1, "layer_types": ["sliding_attention"] * 2}, "context"),
        ({"rms_norm_eps": 1e300}, "epsilon"),
    ],
)
def test_numbers_with_which_nothing_can_be_computed_are_refused(
    tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    """The self-test ended the host with an error of its own."""
    folder = tiny_folder.write(tmp_path / "model", changed=changed)
    with pytest.raises(ModelFileInvalid, match=named) as caught:
        open_folder(folder)
    assert str(folder / "config.json") in caught.value.detail


def test_a_tensor_that_stands_in_the_header_twice_is_refused(tmp_path: Path) -> None:
    """Which of the two counts would depend on the reader."""
    path = tiny_model.write(tmp_path / "twice.gguf")
    path.write_bytes(path.read_bytes().replace(b"blk.1.attn_q.weight", b"blk.0.attn_q.weight"))
    with pytest.raises(ModelFileInvalid, match=r"blk\.0\.attn_q\.weight twice"):
        open_model_file(path)
