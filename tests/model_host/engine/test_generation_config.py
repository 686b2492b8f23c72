"""The numbers that model files recommend are read by our names."""

import json
from pathlib import Path

import pytest

from model_host.engine.generation_config import from_folder, from_gguf
from model_host.engine.hf_folder import open_folder
from model_host.errors import ModelFileInvalid
from tests.model_host.engine import tiny_folder


def test_a_gguf_files_numbers() -> None:
    fields = {
        "general.sampling.temp": 0.6,
        "general.sampling.penalty_last_n": 64,
        "general.name": 1,
    }
    assert from_gguf(fields) == {"temperature": 0.6, "penalty_window": 64}


def test_a_folders_numbers() -> None:
    given = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "eos_token_id": 2}
    assert from_folder(given) == {"temperature": 0.7, "top_p": 0.8, "top_k": 20}


def test_a_folder_that_turns_sampling_off_recommends_the_likeliest_token() -> None:
    assert from_folder({"do_sample": False, "temperature": 0.7}) == {"temperature": 0.0}


def test_a_folder_without_a_temperature_recommends_nothing() -> None:
    assert from_folder({"top_k": 50}) == {}


def test_a_folders_file_is_read_where_there_is_one(tmp_path: Path) -> None:
    folder = tiny_folder.write(tmp_path / "model")
    assert open_folder(folder).sampling == {}
    path = folder / "generation_config.json"
    path.write_text(json.dumps({"temperature": 0.6}))
    assert open_folder(folder).sampling == {"temperature": 0.6}
    path.write_text("{")
    with pytest.raises(ModelFileInvalid):
        open_folder(folder)
