"""The SentencePiece tokenizer of a folder comes out as that of a GGUF of the same model."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend

from model_host.engine.gguf_file import open_model_file
from model_host.engine.hf_tokenizer import read_tokenizer
from model_host.engine.model_file import TokenizerData
from model_host.engine.tokenizer import Tokenizer
from model_host.errors import TokenizerUnknown
from tests.model_host.engine import tiny_pieces

FIELDS = {"bos_token_id": 1, "eos_token_id": 2}
METASPACE = {"type": "Metaspace", "replacement": tiny_pieces.SPACE, "split": False}


def read(folder: Path, whole: dict[str, Any]) -> TokenizerData:
    tiny_pieces.write_json(folder, whole)
    return read_tokenizer(folder, FIELDS, len(tiny_pieces.TOKENS))


def test_it_has_the_data_of_the_gguf_s(tmp_path: Path) -> None:
    gguf = open_model_file(tiny_pieces.write_gguf(tmp_path / "model.gguf")).tokenizer
    data = read(tmp_path, tiny_pieces.tokenizer_json())
    unused = tiny_pieces.TOKENS.index("unused")  # a folder gives it no text
    assert (*data.tokens[:unused], "unused") == gguf.tokens
    assert (data.types, data.merges, data.pre) == (gguf.types, gguf.merges, gguf.pre)
    assert (data.model, data.bos_id, data.eos_id) == (gguf.model, gguf.bos_id, gguf.eos_id)


def test_texts_have_the_ids_that_the_folder_s_own_tokenizer_gives(tmp_path: Path) -> None:
    whole = tiny_pieces.tokenizer_json()
    ours = Tokenizer.build(read(tmp_path, whole))
    theirs = Backend.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("there in here, inherent", "é à 🦊", "in     the       a\n\n  x", "<0x0A>the"):
        assert ours.encode(" " + text) == theirs.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("normalizer", "pre", "spacing"),
    [
        (tiny_pieces.LEGACY, None, "spaced"),
        (tiny_pieces.REPLACE, None, "plain"),
        ({"type": "Sequence", "normalizers": [tiny_pieces.REPLACE]}, None, "plain"),
        (None, METASPACE | {"prepend_scheme": "always"}, "spaced"),
        (None, METASPACE | {"prepend_scheme": "first"}, "first"),
        (None, METASPACE | {"prepend_scheme": "never"}, "plain"),
    ],
)
def test_it_says_where_spaces_are_added(
    tmp_path: Path, normalizer: object, pre: object, spacing: str
) -> None:
    whole = tiny_pieces.tokenizer_json() | {"normalizer": normalizer, "pre_tokenizer": pre}
    assert read(tmp_path, whole).pre == spacing


@pytest.mark.parametrize(
    ("normalizer", "pre"),
    [
        (None, None),
        ({"type": "NFKC"}, None),
        (tiny_pieces.LEGACY, METASPACE | {"prepend_scheme": "always"}),
        (None, METASPACE | {"prepend_scheme": "always", "split": True}),
        (None, METASPACE | {"prepend_scheme": "maybe"}),
        (None, METASPACE),
        (None, [METASPACE]),
    ],
)
def test_another_way_to_divide_texts_is_refused(
    tmp_path: Path, normalizer: object, pre: object
) -> None:
    whole = tiny_pieces.tokenizer_json() | {"normalizer": normalizer, "pre_tokenizer": pre}
    with pytest.raises(TokenizerUnknown, match="into pieces"):
        read(tmp_path, whole)


def test_merges_that_are_not_those_of_the_pieces_are_refused(tmp_path: Path) -> None:
    merges = tiny_pieces.RAW["merges"]
    with pytest.raises(TokenizerUnknown, match="2 merges"):
        read(tmp_path, tiny_pieces.tokenizer_json(merges=merges[2:]))
    extra = [*merges, "< 0x", "E ND"]  # to no piece, and one that is there twice
    assert list(read(tmp_path, tiny_pieces.tokenizer_json(merges=extra)).merges)[-1] == "E ND"
