"""A folder's tokenizer and template come out as those of a GGUF of the same model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers

from model_host.engine.gguf_file import open_model_file
from model_host.engine.hf_folder import open_folder
from model_host.engine.hf_tokenizer import read_template, read_tokenizer
from model_host.engine.model_file import CONTROL, NORMAL, UNUSED, USER_DEFINED, TokenizerData
from model_host.engine.pre_tokenizer import build_pre_tokenizer
from model_host.engine.tokenizer import Tokenizer
from model_host.errors import ModelFileError, ModelFileInvalid, TokenizerUnknown
from tests.model_host.engine import tiny_folder, tiny_model

TEXT = "hello  wörld 123456 it's\r\n\n done <|end|> e\u0301 東京🦊"
Json = dict[str, Any]


def _read(folder: Path, whole: Json, fields: Json | None = None, rows: int = 0) -> TokenizerData:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    return read_tokenizer(folder, fields or {}, rows or len(tiny_model.TOKENS))


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken"])
def test_a_known_tokenizer_has_the_digest_of_the_gguf_s(tmp_path: Path, pre: str) -> None:
    gguf = open_model_file(tiny_model.write(tmp_path / "model.gguf", pre=pre)).tokenizer
    built = build_pre_tokenizer(pre)
    whole = tiny_folder.tokenizer_json(built, ignore_merges=pre in ("llama-bpe", "tekken"))
    data = _read(tmp_path, whole)
    assert data == gguf
    assert Tokenizer.build(data).digest == Tokenizer.build(gguf).digest


@pytest.mark.parametrize("ignore_merges", [False, True])
def test_an_unknown_pre_tokenizer_is_used_as_it_is_described(
    tmp_path: Path, ignore_merges: bool
) -> None:
    pre = tiny_folder.split_by(r"\p{N}|[^\p{N}]+")
    whole = tiny_folder.tokenizer_json(pre, ignore_merges=ignore_merges)
    tokenizer = Tokenizer.build(_read(tmp_path, whole))
    theirs = Backend.from_str(json.dumps(whole))
    text = "hello wörld 123 \r\n done"
    assert tokenizer.encode(text) == theirs.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode_bytes(tokenizer.encode(TEXT)) == TEXT.encode()
    other = tiny_folder.tokenizer_json(pre, ignore_merges=not ignore_merges)
    assert Tokenizer.build(_read(tmp_path, other)).digest != tokenizer.digest


def test_a_known_pre_tokenizer_that_treats_words_otherwise_has_no_name(tmp_path: Path) -> None:
    data = _read(tmp_path, tiny_folder.tokenizer_json(ignore_merges=True))
    assert json.loads(data.pre)["ignore_merges"]


def test_an_option_left_out_has_its_default(tmp_path: Path) -> None:
    whole = tiny_folder.tokenizer_json()
    whole["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    assert _read(tmp_path, whole).pre == "gpt-2"


def test_merges_may_be_pairs(tmp_path: Path) -> None:
    pairs = [merge.split(" ") for merge in tiny_model.MERGES]
    assert _read(tmp_path, tiny_folder.tokenizer_json(merges=pairs)).merges == tiny_model.MERGES


def test_texts_keep_their_bytes_though_the_folder_would_normalise_them(tmp_path: Path) -> None:
    whole = tiny_folder.tokenizer_json() | {"normalizer": {"type": "NFC"}}
    tokenizer = Tokenizer.build(_read(tmp_path, whole))
    assert tokenizer.decode_bytes(tokenizer.encode(TEXT)) == TEXT.encode()


def test_a_normalizer_that_does_nothing_is_none(tmp_path: Path) -> None:
    whole = tiny_folder.tokenizer_json()
    nothing = whole | {"normalizer": {"type": "Sequence", "normalizers": []}}
    assert _read(tmp_path, nothing) == _read(tmp_path, whole)


def test_added_tokens_have_the_types_that_llama_cpp_gives_them(tmp_path: Path) -> None:
    whole, size = tiny_folder.tokenizer_json(), len(tiny_model.TOKENS)
    plain = {"special": False, "lstrip": False, "rstrip": False, "single_word": False}
    for at, text in enumerate(("<tool>", "<|fim|>", "<\uff5cthink\uff5c>")):
        whole["added_tokens"].append({"id": size + at, "content": text, **plain})
    data = _read(tmp_path, whole, rows=size + 5)
    assert data.tokens[size:] == (
        "<tool>",
        "<|fim|>",
        "<\uff5cthink\uff5c>",
        f"[PAD{size + 3}]",
        f"[PAD{size + 4}]",
    )
    assert data.types[size:] == (USER_DEFINED, CONTROL, CONTROL, UNUSED, UNUSED)
    assert data.types[:3] == (CONTROL, CONTROL, NORMAL)
    tokenizer = Tokenizer.build(data)
    assert tokenizer.encode_template("<tool>") == [size]
    assert tokenizer.token_bytes(size) == b"<tool>"
    assert size not in tokenizer.encode("<tool>")
    assert tokenizer.is_control(size + 4)


def test_bos_and_eos_are_named_by_text_or_id(tmp_path: Path) -> None:
    fields = {"bos_token_id": 1, "eos_token_id": [0, 1]}
    data = _read(tmp_path, tiny_folder.tokenizer_json(), fields)
    assert (data.bos_id, data.eos_id) == (1, 0)
    settings = {"bos_token": None, "eos_token": {"content": "<|start|>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    data = _read(tmp_path, tiny_folder.tokenizer_json(), fields)
    assert (data.bos_id, data.eos_id) == (1, 1)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|none|>"}))
    with pytest.raises(ModelFileInvalid, match="none"):
        _read(tmp_path, tiny_folder.tokenizer_json())
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(ModelFileInvalid, match="eos_token_id"):
        _read(tmp_path, tiny_folder.tokenizer_json(), {"eos_token_id": 10**6})


def test_each_id_that_the_configuration_lists_ends_a_turn(tmp_path: Path) -> None:
    whole, fields = tiny_folder.tokenizer_json(), {"eos_token_id": [3, 0, 2]}
    data = _read(tmp_path, whole, fields)
    assert (data.eos_id, data.end_ids) == (3, (0, 2))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    data = _read(tmp_path, whole, fields)
    assert (data.eos_id, data.end_ids) == (0, (2, 3))
    with pytest.raises(ModelFileInvalid, match="eos_token_id"):
        _read(tmp_path, whole, {"eos_token_id": [0, 10**6]})


def test_the_template_is_the_file_s_or_the_settings_default_one(tmp_path: Path) -> None:
    assert read_template(tmp_path) == ""
    settings = tmp_path / "tokenizer_config.json"
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    named.append({"name": ["default"], "template": "no"})
    for found, wanted in ((None, ""), ("plain", "plain"), (named, "yes"), (named[:1], "")):
        settings.write_text(json.dumps({"chat_template": found}))
        assert read_template(tmp_path) == wanted
    settings.write_text(json.dumps({"chat_template": {"a": 1}}))
    with pytest.raises(ModelFileInvalid, match="chat_template"):
        read_template(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ first }}")
    assert read_template(tmp_path) == "{{ first }}"


def _normalizer(whole: Json) -> None:
    whole["normalizer"] = {"type": "Lowercase"}


def _strips(whole: Json) -> None:
    whole["added_tokens"][0]["rstrip"] = True


def _pre(pre: pre_tokenizers.PreTokenizer) -> Callable[[Json], None]:
    return lambda whole: whole.update(pre_tokenizer=json.loads(pre.__getstate__()))


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
UNKNOWN: dict[str, tuple[Callable[[Json], None], str]] = {
    "unigram": (lambda whole: whole["model"].update(type="Unigram"), "Unigram"),
    "byte fallback": (lambda whole: whole["model"].update(byte_fallback=True), "into pieces"),
    "dropout": (lambda whole: whole["model"].update(dropout=0.1), "dropout"),
    "suffixes": (lambda whole: whole["model"].update(end_of_word_suffix="</w>"), "end_of_word"),
    "a normaliser": (_normalizer, "Lowercase"),
    "a token that strips": (_strips, "strips"),
    "no pre-tokenizer": (lambda whole: whole.update(pre_tokenizer=None), "pre-tokenizer"),
    "metaspace": (_pre(pre_tokenizers.Metaspace()), "Metaspace"),
    "an added space": (_pre(pre_tokenizers.ByteLevel(add_prefix_space=True)), "ByteLevel"),
    "bytes twice": (_pre(pre_tokenizers.Sequence([BYTES, BYTES])), "ByteLevel"),
    "no bytes": (_pre(pre_tokenizers.Digits()), "Digits"),
    "a split that drops": (_pre(tiny_folder.split_by(" ", "removed")), "Removed"),
    "white space": (_pre(pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), BYTES])), "White"),
}


@pytest.mark.parametrize(("change", "named"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_tokenizer_that_is_not_rebuilt_exactly_is_refused_by_name(
    tmp_path: Path, change: Callable[[Json], None], named: str
) -> None:
    whole = tiny_folder.tokenizer_json()
    change(whole)
    with pytest.raises(TokenizerUnknown, match=named):
        _read(tmp_path, whole)


INVALID: dict[str, Callable[[Json], None]] = {
    "no model": lambda whole: whole.update(model=None),
    "no vocabulary": lambda whole: whole["model"].update(vocab=[]),
    "no merges": lambda whole: whole["model"].update(merges=None),
    "a merge of three": lambda whole: whole["model"].update(merges=["a b c"]),
    "a merge of numbers": lambda whole: whole["model"].update(merges=[[1, 2]]),
    "an id beyond the rows": lambda whole: whole["model"]["vocab"].update(new=9999),
    "an id that is no number": lambda whole: whole["model"]["vocab"].update(new="1"),
    "one id twice": lambda whole: whole["model"]["vocab"].update(new=5),
    "a token without text": lambda whole: whole["added_tokens"].append({"id": 5}),
    "a token with two ids": lambda whole: whole["model"]["vocab"].update({"<|end|>": 1}),
}


@pytest.mark.parametrize("change", INVALID.values(), ids=INVALID)
def test_a_tokenizer_that_is_not_sound_is_refused(
    tmp_path: Path, change: Callable[[Json], None]
) -> None:
    whole = tiny_folder.tokenizer_json()
    change(whole)
    with pytest.raises(ModelFileError):
        _read(tmp_path, whole)


def test_a_description_in_a_gguf_is_checked_like_one_in_a_folder(tmp_path: Path) -> None:
    for pre in ("{", "{}", '{"pre_tokenizer":{"type":"Whitespace"},"ignore_merges":false}'):
        file = open_model_file(tiny_model.write(tmp_path / "model.gguf", pre=pre))
        with pytest.raises(TokenizerUnknown):
            Tokenizer.build(file.tokenizer)


def test_an_invalid_pattern_is_refused(tmp_path: Path) -> None:
    whole = tiny_folder.tokenizer_json()
    step = {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}
    last = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    whole["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [step, last]}
    with pytest.raises(TokenizerUnknown):
        Tokenizer.build(_read(tmp_path, whole))


def test_a_folder_has_its_tokenizer_and_template(tmp_path: Path) -> None:
    file = open_folder(tiny_folder.write(tmp_path / "model"))
    assert file.template == "{{ messages }}"
    assert file.tokenizer.tokens[file.tokenizer.eos_id or 0] == "<|end|>"
    assert file.name == "model"
