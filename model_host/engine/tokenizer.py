"""The tokenizer of a model: byte-level BPE, exactly (spec/07-host, "rendering").

Content and template literals are encoded by two different tokenizers. The one for content
has no control tokens, so `<|im_end|>` typed by a person is plain text. Bytes that the
vocabulary lacks are refused; the library would drop them without an error.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend

from model_host.engine.model_file import TokenizerData
from model_host.engine.pre_tokenizer import build_pre_tokenizer, ignores_merges, library_errors
from model_host.errors import TokenizerUnknown
from model_host.refusals import TokenizerBytesMissing
from replica.ids import Digest

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""Types of tokens, as llama.cpp numbers them."""


def _byte_characters() -> list[str]:
    """Return the character for each byte of a byte-level vocabulary (GPT-2)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    characters, extra = [], 0
    for byte in range(256):
        characters.append(chr(byte if byte in printable else 256 + extra))
        extra += byte not in printable
    return characters


_CHARACTER_OF = _byte_characters()
_BYTE_OF = {character: byte for byte, character in enumerate(_CHARACTER_OF)}


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Text to token ids and token ids to bytes."""

    data: TokenizerData
    digest: Digest
    """SHA-256 over vocabulary, merges, token types and pre-tokenizer."""
    bytes_missing: frozenset[int]
    """Byte values without a token."""
    token_bytes_max: int
    """The most bytes of content that one token stands for."""
    _content: Backend
    _literal: Backend
    _bytes: tuple[bytes, ...]

    @property
    def token_count(self) -> int:
        """Return the size of the vocabulary; every id is below it."""
        return len(self._bytes)

    @classmethod
    def build(cls, data: TokenizerData) -> Self:
        """Rebuild a file's tokenizer. Raises TokenizerUnknown."""
        if data.model != "gpt2":
            raise TokenizerUnknown(f"The host can't rebuild a {data.model!r} tokenizer.")
        vocabulary = {text: token_id for token_id, text in enumerate(data.tokens)}
        typed = {text: i for text, i in vocabulary.items() if data.types[i] == NORMAL}
        merges = [_merge(text) for text in data.merges]
        literal = _backend(data, vocabulary, merges)
        literal.add_special_tokens(
            [
                AddedToken(text, special=True, normalized=False)
                for text, kind in zip(data.tokens, data.types, strict=True)
                if kind in (CONTROL, USER_DEFINED)
            ]
        )
        known = {_BYTE_OF.get(text) for text in typed if len(text) == 1}
        token_bytes = tuple(map(_token_bytes, data.tokens, data.types))
        return cls(
            data=data,
            digest=_digest(data),
            bytes_missing=frozenset(set(range(256)) - known),
            token_bytes_max=max((len(token_bytes[i]) for i in typed.values()), default=1),
            _content=_backend(data, typed, merges),
            _literal=literal,
            _bytes=token_bytes,
        )

    @staticmethod
    def shared(data: TokenizerData) -> "Tokenizer":
        """Return one tokenizer for all profiles of a model. Raises TokenizerUnknown."""
        return _shared(data)

    def encode(self, text: str) -> list[int]:
        """Tokenise content: control tokens in it are plain text.

        Raises TokenizerBytesMissing.
        """
        self.check_bytes(text)
        # This function of the library lets other threads run meanwhile, and takes half the time.
        (encoded,) = self._content.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoded.ids
        return ids

    def encode_template(self, text: str) -> list[int]:
        """Tokenise a template literal: control tokens in it are control tokens.

        Raises TokenizerBytesMissing.
        """
        self.check_bytes(text)
        ids: list[int] = self._literal.encode(text, add_special_tokens=False).ids
        return ids

    def missing_bytes(self, text: str) -> bytes:
        """Return the byte values of a text that the vocabulary lacks, ascending."""
        return bytes(sorted(self.bytes_missing.intersection(text.encode())))

    def check_bytes(self, text: str) -> None:
        """Raise TokenizerBytesMissing if the vocabulary lacks a byte of the text."""
        if missing := self.missing_bytes(text):
            raise TokenizerBytesMissing(bytes_missing=missing)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the exact bytes of a token; none for a control token.

        They need not be whole characters. A token defined by the model's maker, such as
        `<think>`, has the bytes of its text.
        """
        return self._bytes[token_id]

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of a sequence of tokens, without control tokens."""
        return b"".join(self._bytes[token_id] for token_id in ids)

    def is_control(self, token_id: int) -> bool:
        """Say whether only templates and models produce a token, never typed text."""
        return self.data.types[token_id] != NORMAL

    def control_id(self, text: str) -> int | None:
        """Return the id of the control token with this text, None if there is none."""
        try:
            token_id = self.data.tokens.index(text)
        except ValueError:
            return None
        return token_id if self.is_control(token_id) else None


@lru_cache(maxsize=2)
def _shared(data: TokenizerData) -> Tokenizer:
    return Tokenizer.build(data)


def _backend(
    data: TokenizerData, vocabulary: dict[str, int], merges: list[tuple[str, str]]
) -> Backend:
    """Build the library's tokenizer without control tokens.

    No unknown token is set. The file names `<|endoftext|>`, which would then end a text at
    each missing byte.
    """
    _check_merges(merges, vocabulary)
    options = {"fuse_unk": False, "ignore_merges": ignores_merges(data.pre)}
    with library_errors("vocabulary"):
        backend = Backend(models.BPE(vocab=vocabulary, merges=merges, **options))
    backend.pre_tokenizer = build_pre_tokenizer(data.pre)
    backend.decoder = decoders.ByteLevel()
    return backend


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


def _merge(text: str) -> tuple[str, str]:
    left, space, right = text.partition(" ")
    if not space or " " in right:
        raise TokenizerUnknown(f"The merge {text!r} isn't two tokens.")
    return left, right


def _token_bytes(text: str, kind: int) -> bytes:
    """Return the bytes of a token's text; a control token has none."""
    if kind == USER_DEFINED:
        return text.encode()  # the file has the text as it is shown
    if kind != NORMAL:
        return b""
    if not set(text) <= _BYTE_OF.keys():
        raise TokenizerUnknown(f"The token {text!r} isn't made of byte characters.")
    return bytes(_BYTE_OF[character] for character in text)


def _digest(data: TokenizerData) -> Digest:
    """Hash the data that determine the tokenisation of a text."""
    parts: Sequence[object] = (data.model, data.pre, data.tokens, data.types, data.merges)
    canonical = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    return Digest(hashlib.sha256(b"antiphon/v1/tokenizer\0" + canonical.encode()).digest())
