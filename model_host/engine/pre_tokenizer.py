"""Pre-tokenizers: those llama.cpp has a name for, and those a tokenizer.json describes.

A pre-tokenizer divides a text before the merges of BPE. Two models have one digest of their
tokenizer only if they name it alike, so a description is replaced by llama.cpp's name.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as Backend

from model_host.errors import TokenizerUnknown

_NAMES = ("gpt-2", "smollm", "llama-bpe", "qwen2", "tekken")
_WHOLE = ("llama-bpe", "llama3", "llama-v3", "falcon3", "tekken")
"""Pre-tokenizers of vocabularies in which some whole words can't be produced by merges."""
_PARTS = ("Split", "Digits", "ByteLevel")
_KEEPS = ("Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@contextmanager
def library_errors(part: str) -> Iterator[None]:
    """Raise what the tokenizers library raises as TokenizerUnknown; `part` is what it builds."""
    try:
        yield
    except BaseException as error:
        # A panic of its Rust code is no Exception, and its type has no name to import.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise TokenizerUnknown(f"The host can't rebuild the {part}: {error}") from error
        raise


def build_pre_tokenizer(pre: str) -> pre_tokenizers.PreTokenizer:
    """Return the pre-tokenizer of this name or description. Raises TokenizerUnknown."""
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    match pre:
        case "gpt-2" | "gpt2":
            return gpt2
        case "smollm":
            digits = pre_tokenizers.Digits(individual_digits=True)
            return pre_tokenizers.Sequence([digits, gpt2])
        case "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "smaug-bpe":
            return _split_by(_SPLIT.replace("DIGITS", r"\p{N}{1,3}"))
        case "qwen2" | "deepseek-r1-qwen" | "megrez":
            return _split_by(_SPLIT.replace("DIGITS", r"\p{N}"))
        case "tekken":
            return _split_by(_TEKKEN)
        case _ if pre.startswith("{"):
            return _described(_parse(pre)[0])
    raise TokenizerUnknown(f"The host can't rebuild the pre-tokenizer {pre!r}.")


def _split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, plain])


def _described(description: object) -> pre_tokenizers.PreTokenizer:
    """Build the pre-tokenizer that a tokenizer.json describes. Raises TokenizerUnknown."""
    model = {"type": "BPE", "vocab": {}, "merges": []}
    whole = {"version": "1.0", "added_tokens": [], "pre_tokenizer": description, "model": model}
    with library_errors("pre-tokenizer"):
        backend = Backend.from_str(json.dumps(whole))
    built: pre_tokenizers.PreTokenizer = backend.pre_tokenizer
    return built


def name_pre_tokenizer(description: Mapping[str, Any], *, ignore_merges: bool) -> str:
    """Return llama.cpp's name of the pre-tokenizer that a tokenizer.json describes.

    One without a name gets its description as JSON. Raises TokenizerUnknown for one that may
    drop or change a character.
    """
    steps = _steps(description)
    for name in _NAMES:
        own = json.loads(build_pre_tokenizer(name).__getstate__())
        if _steps(own) == steps and ignores_merges(name) == ignore_merges:
            return name
    whole = {"ignore_merges": ignore_merges, "pre_tokenizer": description}
    return json.dumps(whole, sort_keys=True, separators=(",", ":"))


def ignores_merges(pre: str) -> bool:
    """Say whether a word of the vocabulary is one token even if no merges produce it."""
    return _parse(pre)[1] if pre.startswith("{") else pre in _WHOLE


def _parse(pre: str) -> tuple[dict[str, Any], bool]:
    """Return the description in JSON, and whether merges are ignored. Raises TokenizerUnknown."""
    try:
        whole = json.loads(pre)
        _steps(whole["pre_tokenizer"])
        return whole["pre_tokenizer"], bool(whole["ignore_merges"])
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise TokenizerUnknown(f"The host can't rebuild the pre-tokenizer {pre!r}.") from error


def _steps(description: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of a description, their defaults written out.

    The option that concerns offsets alone is left out. Raises TokenizerUnknown unless every
    step keeps the characters, and the last one alone converts them to bytes.
    """
    is_sequence = description.get("type") == "Sequence"
    steps = description.get("pretokenizers") if is_sequence else [description]
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise TokenizerUnknown(f"The host can't rebuild the pre-tokenizer {description!r}.")
    kinds = [step.get("type") for step in steps]
    if kinds[-1:] != ["ByteLevel"] or "ByteLevel" in kinds[:-1] or any(map(_alters, steps)):
        raise TokenizerUnknown(f"The host can't rebuild the pre-tokenizer {description!r}.")
    full = [*steps[:-1], {"use_regex": True} | steps[-1]]
    return [{key: value for key, value in step.items() if key != "trim_offsets"} for step in full]


def _alters(step: Mapping[str, Any]) -> bool:
    """Say whether a step is unknown, drops characters or adds any."""
    kept = step.get("behavior", "Isolated") in _KEEPS
    return step.get("type") not in _PARTS or not kept or bool(step.get("add_prefix_space"))
