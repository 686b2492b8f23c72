"""A small byte-level BPE tokenizer, and its digest: the tokenizer of render.json."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from spec.vectors.make.build import sha256

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
# gpt-2's pattern, for texts whose letters and digits Python's classes know alike.
WORDS = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+"
)  # fmt: skip
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


class BytesMissingError(Exception):
    """The vocabulary lacks a byte of a text."""


def _characters() -> list[str]:
    """Return the character that stands for each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in shown]
    table = {byte: chr(byte) for byte in shown} | {b: chr(256 + n) for n, b in enumerate(others)}
    return [table[byte] for byte in range(256)]


CHARACTERS = _characters()


@dataclass(frozen=True)
class Tokenizer:
    """Tokens by id with their types, and merges by rank."""

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    model: str = "gpt2"
    pre: str = "gpt-2"

    @property
    def canonical(self) -> str:
        """The JSON that the digest covers."""
        parts = [self.model, self.pre, self.tokens, self.types, self.merges]
        return json.dumps(parts, ensure_ascii=True, separators=(",", ":"))

    @property
    def digest(self) -> bytes:
        """The tokenizer's digest."""
        return sha256(b"antiphon/v1/tokenizer\0" + self.canonical.encode())

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of a token in an answer."""
        text, kind = self.tokens[token], self.types[token]
        if kind == NORMAL:
            return bytes(map(CHARACTERS.index, text))
        return text.encode() if kind == USER_DEFINED else b""

    def is_control(self, token: int) -> bool:
        """Say whether typed text never becomes this token."""
        return self.types[token] != NORMAL

    def encode(self, text: str) -> list[int]:
        """Tokenise content."""
        ids = []
        for word in WORDS.findall(text):
            symbols = [CHARACTERS[byte] for byte in word.encode()]
            if missing := set(symbols).difference(self.tokens):
                raise BytesMissingError(missing)
            ids += [self.tokens.index(symbol) for symbol in self._merged(symbols)]
        return ids

    def encode_literal(self, text: str) -> list[int]:
        """Tokenise a literal, in which control tokens are control tokens."""
        special = [t for t, kind in zip(self.tokens, self.types, strict=True) if kind != NORMAL]
        split = "|".join(map(re.escape, sorted(special, key=len, reverse=True)))
        ids = []
        for piece in re.split(f"({split})", text):
            ids += [self.tokens.index(piece)] if piece in special else self.encode(piece)
        return ids

    def _merged(self, symbols: list[str]) -> list[str]:
        """Perform the merge of the lowest rank, the first from the left, until there is none."""
        ranks = {merge: rank for rank, merge in enumerate(self.merges)}
        while True:
            pairs = [f"{a} {b}" for a, b in pairwise(symbols)]
            known = [(ranks[pair], at) for at, pair in enumerate(pairs) if pair in ranks]
            if not known:
                return symbols
            _, at = min(known)
            symbols[at : at + 2] = ["".join(symbols[at : at + 2])]

    def shown(self, ids: Iterable[int]) -> str:
        """Return the text of tokens, control tokens included."""
        data = b""
        for token in ids:
            text = self.tokens[token]
            plain = not self.is_control(token)
            data += bytes(map(CHARACTERS.index, text)) if plain else text.encode()
        return data.decode(errors="replace")


def small() -> Tokenizer:
    """Return the tokenizer of the file: ASCII, a few letters more, and a few words."""
    special = {"<|im_start|>": CONTROL, "<|im_end|>": CONTROL, "<think>": USER_DEFINED}
    listed = [*range(33, 127), ord(" "), ord("\n"), *"éà".encode()]
    single = [CHARACTERS[byte] for byte in dict.fromkeys(listed)]
    merges = (
        "h e", "l l", "he ll", "hell o", "Ġ t", "Ġt he", "Ġ a", "i n", "o n", "e r", "u s", "us er",
        "Ċ Ċ", "< |", "| >", "a r", "ar g", "t o", "to o", "too l", "f u", "fu n", "c t", "n a",
        "m e", "na me", '" :', "Ġ Ġ", "} }",
    )  # fmt: skip
    tokens = (*special, *single, *(merge.replace(" ", "") for merge in merges), "<|im_start")
    types = (*special.values(), *(NORMAL for _ in tokens[len(special) + 1 :]), CONTROL)
    return Tokenizer(tokens, types, merges)
