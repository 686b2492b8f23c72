"""The tokenizer of a model, exactly: BPE of bytes or of pieces (spec/07-host §2).

Content and template literals are encoded by two different tokenizers. The one for content
has no control tokens, so `<|im_end|>` typed by a person is plain text. Bytes that the
vocabulary lacks are refused; the library would drop them without an error.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from model_host.engine import byte_level, sentence_pieces
from model_host.engine.model_file import (
    BYTE,
    CONTROL,
    NORMAL,
    USER_DEFINED,
    TokenizerData,
)
from model_host.errors import TokenizerUnknown
from model_host.refusals import TokenizerBytesMissing
from replica.ids import Digest

_FOUND = (CONTROL, USER_DEFINED)
"""Types of the tokens that are found in template literals."""
BYTE_LEVEL = "gpt2"
"""GGUF's name of a byte-level BPE tokenizer."""
_ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
"""Control tokens with which models of the families end a turn, whatever their files list."""


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
    _space_ids: tuple[int, ...] = ()
    """The ids of `▁` itself, where pieces have that character for a space."""
    _controls: tuple[str, ...] = ()
    """The control tokens behind which text begins with a space."""
    hides_space: bool = False
    """Whether a context begins with a space, which is no part of its text: nor of an answer's."""

    @property
    def token_count(self) -> int:
        """Return the size of the vocabulary; every id is below it."""
        return len(self._bytes)

    @classmethod
    def build(cls, data: TokenizerData) -> Self:
        """Rebuild a file's tokenizer. Raises TokenizerUnknown."""
        if data.model not in (BYTE_LEVEL, sentence_pieces.MODEL):
            raise TokenizerUnknown(f"The host can't rebuild a {data.model!r} tokenizer.")
        has_pieces = data.model == sentence_pieces.MODEL
        is_spaced = has_pieces and data.pre == sentence_pieces.SPACED
        hides_space = has_pieces and data.pre != sentence_pieces.PLAIN
        form = sentence_pieces if has_pieces else byte_level
        vocabulary = {text: token_id for token_id, text in enumerate(data.tokens)}
        typed = {text: i for text, i in vocabulary.items() if data.types[i] == NORMAL}
        merges = [_merge(text) for text in data.merges]
        # An empty text is nowhere found; a pattern would find it between any two characters.
        controls = [
            t for t, kind in zip(data.tokens, data.types, strict=True) if t and kind in _FOUND
        ]
        literal = form.backend(data, vocabulary, merges)
        literal.add_special_tokens(
            [AddedToken(text, special=True, normalized=False) for text in controls]
        )
        token_bytes = tuple(map(form.token_bytes, data.tokens, data.types))
        space = sentence_pieces.SPACE.encode() if has_pieces else b""
        return cls(
            data=data,
            digest=_digest(data),
            bytes_missing=form.missing_bytes(data.tokens, data.types),
            token_bytes_max=max((len(token_bytes[i]) for i in typed.values()), default=1),
            _content=form.backend(data, typed, merges),
            _literal=literal,
            _bytes=token_bytes,
            _space_ids=tuple(vocabulary[sentence_pieces.byte_token(byte)] for byte in space),
            _controls=tuple(controls) if is_spaced else (),
            hides_space=hides_space,
        )

    @staticmethod
    def shared(data: TokenizerData) -> "Tokenizer":
        """Return one tokenizer for all profiles of a model. Raises TokenizerUnknown."""
        return _shared(data)

    def encode(self, text: str) -> list[int]:
        """Tokenise content: control tokens in it are plain text.

        Raises TokenizerBytesMissing.
        """
        return self._encode(self._content, text)

    def encode_template(self, text: str, *, begins: bool = False) -> list[int]:
        """Tokenise a template literal: control tokens in it are control tokens.

        `begins` says that a context begins with it. Raises TokenizerBytesMissing.
        """
        if not self._space_ids:
            return self._encode(self._literal, text)
        ids: list[int] = []
        is_spaced = begins and self.hides_space
        for part, token_id in self._parts(text):
            ids += self._encode(self._content, _spaced(part) if is_spaced else part)
            if token_id is not None:
                ids.append(token_id)
                is_spaced = bool(self._controls)
        return ids

    def adds_space(self, literal: str, *, begins: bool = False) -> bool:
        """Say whether a text behind this literal begins with a space that nobody wrote."""
        return literal.endswith(self._controls) or (begins and self.hides_space and not literal)

    def _parts(self, literal: str) -> Iterator[tuple[str, int | None]]:
        """Yield the texts of a literal, each with the control token behind it; the last has none.

        The library finds them, at each place the longest: a pattern of 100,000 takes seconds.
        """
        found, end = self._literal.encode(literal, add_special_tokens=False), 0
        for token_id, (start, stop) in zip(found.ids, found.offsets, strict=True):
            if self.data.types[token_id] in _FOUND:
                yield literal[end:start], token_id
                end = stop
        yield literal[end:], None

    def _encode(self, backend: Backend, text: str) -> list[int]:
        self.check_bytes(text)
        parts = text.split(sentence_pieces.SPACE) if self._space_ids else [text]
        # This function of the library lets other threads run meanwhile, and takes half the time.
        first, *others = backend.encode_batch_fast(parts, add_special_tokens=False)
        ids: list[int] = first.ids
        for encoded in others:
            ids += [*self._space_ids, *encoded.ids]
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
        return self.data.types[token_id] not in (NORMAL, BYTE)

    @property
    def turn_ends(self) -> frozenset[int]:
        """The ids with which the model ends a turn (HOST-33)."""
        tokens, listed = self.data.tokens, {self.data.eos_id, *self.data.end_ids}
        named = {i for i, text in enumerate(tokens) if text in _ENDS and self.is_control(i)}
        return frozenset(named.union(i for i in listed if i is not None))


@lru_cache(maxsize=2)
def _shared(data: TokenizerData) -> Tokenizer:
    return Tokenizer.build(data)


def _merge(text: str) -> tuple[str, str]:
    left, space, right = text.partition(" ")
    if not space or " " in right:
        raise TokenizerUnknown(f"The merge {text!r} isn't two tokens.")
    return left, right


def _spaced(text: str) -> str:
    return " " + text.removeprefix(" ") if text else ""


def _digest(data: TokenizerData) -> Digest:
    """Hash the data that determine the tokenisation of a text."""
    parts: Sequence[object] = (data.model, data.pre, data.tokens, data.types, data.merges)
    canonical = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    return Digest(hashlib.sha256(b"antiphon/v1/tokenizer\0" + canonical.encode()).digest())
