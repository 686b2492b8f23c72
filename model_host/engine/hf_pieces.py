"""The SentencePiece tokenizer of a Hugging Face folder: a BPE with a fallback to bytes.

It comes out as a GGUF of the same model has it. No torch here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from model_host.engine.model_file import BYTE, NORMAL, UNKNOWN
from model_host.engine.sentence_pieces import (
    FIRST,
    PLAIN,
    SPACE,
    SPACED,
    is_byte_token,
    splits_of,
)
from model_host.errors import TokenizerUnknown

_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_PREPEND = {"type": "Prepend", "prepend": SPACE}
_NORMALIZERS = (
    (SPACED, {"type": "Sequence", "normalizers": [_PREPEND, _REPLACE]}),
    (PLAIN, _REPLACE),
    (PLAIN, {"type": "Sequence", "normalizers": [_REPLACE]}),
)
_METASPACE = {"type": "Metaspace", "replacement": SPACE, "split": False}
_SCHEMES = {"always": SPACED, "first": FIRST, "never": PLAIN}
"""By Metaspace's scheme."""


def spacing_of(whole: Mapping[str, Any]) -> str:
    """Say where tokenizer.json adds spaces, in its normaliser or its pre-tokenizer.

    Raises TokenizerUnknown for anything else in these.
    """
    normalizer, pre = whole.get("normalizer"), whole.get("pre_tokenizer")
    if pre is None:
        for spacing, known in _NORMALIZERS:
            if normalizer == known:
                return spacing
    elif normalizer is None and isinstance(pre, dict):
        for scheme, spacing in _SCHEMES.items():
            if pre == _METASPACE | {"prepend_scheme": scheme}:
                return spacing
    raise TokenizerUnknown(
        f"The host doesn't divide texts into pieces by {normalizer!r} and {pre!r}."
    )


def types_of(
    model: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]
) -> tuple[int, ...]:
    """Return the types of tokens with those of bytes, and of the unknown token."""
    unknown = model.get("unk_token")

    def type_of(text: str, kind: int) -> int:
        if text == unknown:
            return UNKNOWN
        return BYTE if kind == NORMAL and is_byte_token(text) else kind

    return tuple(map(type_of, tokens, types))


def merges_of(
    tokens: Sequence[str], types: Sequence[int], merges: Sequence[str]
) -> tuple[str, ...]:
    """Return the merges of tokenizer.json that make pieces of pieces, in their order.

    Raises TokenizerUnknown where they aren't all splits of all pieces, as SentencePiece merges.
    """
    ids = {text: i for i, text in enumerate(tokens) if types[i] == NORMAL}
    pairs = (merge.partition(" ") for merge in merges)
    found = [
        f"{left} {right}" for left, _, right in pairs if {left, right, left + right} <= ids.keys()
    ]
    differing = len(set(found) ^ set(map(" ".join, splits_of(ids))))
    if differing:
        raise TokenizerUnknown(f"{differing} merges aren't those of the pieces, or are missing.")
    return tuple(found)
