"""The tokenizer and the chat template of a Hugging Face folder (spec/07-host §7).

They come out as a GGUF of the same model has them, so that both have one digest and render
alike. Normalisation to NFC is left out, as llama.cpp does: a text keeps its bytes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from model_host.engine import hf_pieces, sentence_pieces
from model_host.engine.json_file import read_json, read_text
from model_host.engine.model_file import (
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    TokenizerData,
    check_token_id,
)
from model_host.engine.pre_tokenizer import name_pre_tokenizer
from model_host.engine.tokenizer import BYTE_LEVEL
from model_host.errors import ModelFileInvalid, TokenizerUnknown

_TOKENIZER = "tokenizer.json"
_SETTINGS = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"
_EMPTY: tuple[object, ...] = (None, "", False, 0)
_NORMALIZERS = (None, {"type": "NFC"}, {"type": "Sequence", "normalizers": []})
_STRIPS = ("lstrip", "rstrip", "single_word")


def read_tokenizer(folder: Path, fields: Mapping[str, Any], vocab: int) -> TokenizerData:
    """Read tokenizer.json; `fields` are those of config.json, `vocab` the embedding's rows.

    Raises TokenizerUnknown for a kind that the host can't rebuild, or a ModelFileError.
    """
    whole = read_json(folder / _TOKENIZER)
    model = whole.get("model")
    if not isinstance(model, dict):
        raise ModelFileInvalid(f"{_TOKENIZER} has no model.")
    has_pieces = bool(model.get("byte_fallback"))
    _check_kind(model)
    tokens, types = _tokens(_table(model, "vocab"), _added(whole), vocab)
    settings = read_json(folder / _SETTINGS) if (folder / _SETTINGS).exists() else {}
    merges = tuple(map(_merge, _list(model, "merges")))
    if has_pieces:
        pre, types = hf_pieces.spacing_of(whole), hf_pieces.types_of(model, tokens, types)
        merges = hf_pieces.merges_of(tokens, types, merges)
    else:
        pre = _pre_tokenizer(whole, model)
    eos_id = _special(settings, fields, "eos", tokens)
    ends = {*_listed(fields, "eos_token_id", vocab)}
    return TokenizerData(
        model=sentence_pieces.MODEL if has_pieces else BYTE_LEVEL,
        pre=pre,
        tokens=tokens,
        types=types,
        merges=merges,
        bos_id=_special(settings, fields, "bos", tokens),
        eos_id=eos_id,
        end_ids=tuple(sorted(ends - {eos_id})),
    )


def read_template(folder: Path) -> str:
    """Return the chat template; empty without one. Raises a ModelFileError."""
    if (folder / _TEMPLATE).exists():
        return read_text(folder / _TEMPLATE)
    if not (folder / _SETTINGS).exists():
        return ""
    found = read_json(folder / _SETTINGS).get("chat_template") or ""
    if isinstance(found, list):
        named = [t for t in found if isinstance(t, dict) and t.get("name") == "default"]
        found = (named[-1].get("template") if named else None) or ""
    if not isinstance(found, str):
        raise ModelFileInvalid("chat_template isn't text.")
    return found


def _check_kind(model: Mapping[str, Any]) -> None:
    """Raise TokenizerUnknown for anything but BPE."""
    kind = model.get("type")
    if kind != "BPE":
        raise TokenizerUnknown(f"The host can't rebuild a {kind!r} tokenizer.")
    for option in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(option) not in _EMPTY:
            raise TokenizerUnknown(f"The host can't rebuild a tokenizer with {option}.")


def _pre_tokenizer(whole: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """Return the pre-tokenizer of byte-level BPE by its name. Raises TokenizerUnknown."""
    normalizer, pre = whole.get("normalizer"), whole.get("pre_tokenizer")
    if normalizer not in _NORMALIZERS:
        raise TokenizerUnknown(f"The host doesn't normalise texts by {normalizer!r}.")
    if not isinstance(pre, dict):
        raise TokenizerUnknown("The host can't rebuild a tokenizer without a pre-tokenizer.")
    return name_pre_tokenizer(pre, ignore_merges=bool(model.get("ignore_merges")))


def _table(fields: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = fields.get(key)
    if not isinstance(value, dict):
        raise ModelFileInvalid(f"{_TOKENIZER} has no {key}.")
    return value


def _list(fields: Mapping[str, Any], key: str) -> list[Any]:
    value = fields.get(key)
    if not isinstance(value, list):
        raise ModelFileInvalid(f"{_TOKENIZER} has no {key}.")
    return value


def _added(whole: Mapping[str, Any]) -> dict[str, tuple[Any, int]]:
    """Return id and type of each token that is added to the vocabulary, by its text."""
    found = {}
    for token in _list(whole, "added_tokens"):
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            raise ModelFileInvalid(f"{_TOKENIZER} adds a token that isn't text.")
        text = token["content"]
        if any(token.get(option) for option in _STRIPS):
            raise TokenizerUnknown(f"The host can't rebuild the token {text!r}, which strips.")
        is_control = token.get("special") or _looks_special(text)
        found[text] = token.get("id"), CONTROL if is_control else USER_DEFINED
    return found


def _looks_special(text: str) -> bool:
    """Say whether llama.cpp takes a token for a control token by its text."""
    return (text.startswith("<|") and text.endswith("|>")) or (
        text.startswith("<\uff5c") and text.endswith("\uff5c>")
    )


def _tokens(
    vocabulary: Mapping[str, Any], added: Mapping[str, tuple[Any, int]], size: int
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return texts and types by id; ids without a token get a text that is never produced."""
    tokens, types = [f"[PAD{index}]" for index in range(size)], [UNUSED] * size
    placed = {text: (index, NORMAL) for text, index in vocabulary.items()} | dict(added)
    for text, (value, kind) in placed.items():
        index = check_token_id(value, f"the id of {text!r}", size)
        if index is None or types[index] != UNUSED or vocabulary.get(text, index) != index:
            raise ModelFileInvalid(f"{_TOKENIZER} has no id, or another token's, for {text!r}.")
        tokens[index], types[index] = text, kind
    return tuple(tokens), tuple(types)


def _merge(value: object) -> str:
    """Return a merge as "left right"."""
    parts = value.split(" ") if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or len(parts) != 2:
        raise ModelFileInvalid(f"{_TOKENIZER} has the merge {value!r}, which isn't two tokens.")
    left, right = parts
    if not isinstance(left, str) or not isinstance(right, str) or " " in left + right:
        raise ModelFileInvalid(f"{_TOKENIZER} has the merge {value!r}, which isn't two tokens.")
    return f"{left} {right}"


def _special(
    settings: Mapping[str, Any], fields: Mapping[str, Any], name: str, tokens: Sequence[str]
) -> int | None:
    """Return the id of the BOS or EOS token: named by its text, or in config.json by id."""
    token = settings.get(f"{name}_token")
    text = token.get("content") if isinstance(token, dict) else token
    if text is not None:
        if text not in tokens:
            raise ModelFileInvalid(f"{_SETTINGS} names {text!r}, which isn't a token.")
        return tokens.index(text)
    return next(iter(_listed(fields, f"{name}_token_id", len(tokens))), None)


def _listed(fields: Mapping[str, Any], key: str, vocab: int) -> list[int]:
    """Return the ids of a field, which has one, several or none."""
    value = fields.get(key)
    found = (check_token_id(i, key, vocab) for i in (value if isinstance(value, list) else [value]))
    return [token_id for token_id in found if token_id is not None]
