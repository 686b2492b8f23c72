"""Byte-level BPE: a character of the vocabulary stands for each byte (spec/07-host §2)."""

from collections.abc import Iterable, Mapping, Sequence

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from model_host.engine.model_file import NORMAL, USER_DEFINED, TokenizerData
from model_host.engine.pre_tokenizer import build_pre_tokenizer, ignores_merges, library_errors
from model_host.errors import TokenizerUnknown


def _byte_characters() -> list[str]:
    """Return the character for each byte of a byte-level vocabulary (GPT-2)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    characters, extra = [], 0
    for byte in range(256):
        characters.append(chr(byte if byte in printable else 256 + extra))
        extra += byte not in printable
    return characters


CHARACTER_OF = _byte_characters()
"""The character of each byte."""
_BYTE_OF = {character: byte for byte, character in enumerate(CHARACTER_OF)}


def missing_bytes(tokens: Sequence[str], types: Sequence[int]) -> frozenset[int]:
    """Return the byte values without a normal token of their own."""
    known = {
        _BYTE_OF.get(text)
        for text, kind in zip(tokens, types, strict=True)
        if kind == NORMAL and len(text) == 1
    }
    return frozenset(set(range(256)) - known)


def token_bytes(text: str, kind: int) -> bytes:
    """Return the bytes of a token's text; a control token has none. Raises TokenizerUnknown."""
    if kind == USER_DEFINED:
        return text.encode()  # the file has the text as it is shown
    if kind != NORMAL:
        return b""
    if not set(text) <= _BYTE_OF.keys():
        raise TokenizerUnknown(f"The token {text!r} isn't made of byte characters.")
    return bytes(_BYTE_OF[character] for character in text)


def backend(
    data: TokenizerData, vocabulary: dict[str, int], merges: Sequence[tuple[str, str]]
) -> Backend:
    """Build the library's tokenizer without control tokens. Raises TokenizerUnknown.

    No unknown token is set. The file names `<|endoftext|>`, which would then end a text at
    each missing byte.
    """
    _check_merges(merges, vocabulary)
    options = {"fuse_unk": False, "ignore_merges": ignores_merges(data.pre)}
    with library_errors("vocabulary"):
        built = Backend(models.BPE(vocab=vocabulary, merges=list(merges), **options))
    built.pre_tokenizer = build_pre_tokenizer(data.pre)
    built.decoder = decoders.ByteLevel()
    return built


def _check_merges(merges: Iterable[tuple[str, str]], vocabulary: Mapping[str, int]) -> None:
    """Raise TokenizerUnknown for a merge of, or to, a text that isn't a normal token.

    The library raises an error without a type for some of these, and panics at others.
    """
    for left, right in merges:
        for text in (left, right, left + right):
            if text not in vocabulary:
                raise TokenizerUnknown(
                    f"The merge {left + ' ' + right!r} needs {text!r}, which isn't a normal token."
                )
