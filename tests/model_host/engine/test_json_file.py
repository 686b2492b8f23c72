"""JSON files of a model: an object of texts that are UTF-8, or refused by file and place."""

import json
from pathlib import Path

import pytest

from model_host.engine.json_file import read_json
from model_host.errors import ModelFileInvalid

HALF = "\ud800"


def test_a_pair_of_surrogates_is_one_character(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"a": ["\U0001f98a"], "b\U0001f98a": "\\ud800"}))
    assert read_json(path) == {"a": ["\U0001f98a"], "b\U0001f98a": "\\ud800"}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"chat_template": f"a{HALF}"}, r"chat_template\."),
        ({"added_tokens": [{}, {"content": HALF}]}, r"added_tokens\.1\.content\."),
        ({"model": {"vocab": {HALF: 1}}}, r"model\.vocab\."),
        ({HALF: 1}, "a name"),
        ({"\udfff": {"a": HALF}}, r"a name|dfff\.a"),
    ],
)
def test_half_a_surrogate_pair_is_refused_by_file_and_place(
    tmp_path: Path, value: dict[str, object], place: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value))
    with pytest.raises(ModelFileInvalid, match=place) as caught:
        read_json(path)
    assert str(path) in caught.value.detail
    caught.value.detail.encode()
