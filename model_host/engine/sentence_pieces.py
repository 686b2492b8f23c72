"""BPE of SentencePiece: pieces of text, and bytes for what has none (spec/07-host §2).

A piece has `▁` for a space. Two pieces side by side are merged where both together are a
piece, the earliest one in the order of merging first. A GGUF states that order by scores, a
tokenizer.json by its merges, of which each split of a piece into two is one.
"""

from collections.abc import Iterator, Mapping, Sequence

from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers

from model_host.engine.model_file import BYTE, NORMAL, USER_DEFINED, TokenizerData
from model_host.engine.pre_tokenizer import library_errors
from model_host.errors import TokenizerUnknown

MODEL = "llama"
"""GGUF's name of such a tokenizer."""
SPACED, FIRST, PLAIN = "spaced", "first", "plain"
"""In place of a pre-tokenizer: where text begins with a space that nobody wrote.

At the beginning of a context and behind each control token; at the beginning alone; nowhere.
"""
SPACE = "\u2581"
PIECE_CHARACTERS_MAX = 256
"""Models have some 16; each character is a place to split a piece."""
ALL_CHARACTERS_MAX = 2_500_000
"""Of all pieces together: 10 of each of 250,000 pieces. Models with 32,000 have 200,000."""
MERGES_CHARACTERS_MAX = 5_000_000
"""Of all merges together. Models with 32,000 pieces have 60,000 merges, of 400,000 characters."""


def byte_token(value: int) -> str:
    """Return the text of the token for a byte."""
    return f"<0x{value:02X}>"


_BYTE_OF = {byte_token(value): value for value in range(256)}


def is_byte_token(text: str) -> bool:
    """Say whether a token's text is that of a byte."""
    return text in _BYTE_OF


def splits_of(ids: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield each split of a piece into two pieces: by the piece's id, then by those of the two.

    `ids` are those of all pieces. Raises TokenizerUnknown where they are too many or too long.
    """
    if (longest := max(map(len, ids), default=0)) > PIECE_CHARACTERS_MAX:
        raise TokenizerUnknown(f"A piece has {longest} characters.")
    if (characters := sum(map(len, ids))) > ALL_CHARACTERS_MAX:
        raise TokenizerUnknown(f"The pieces have {characters} characters together.")
    merged = 0
    for piece in sorted(ids, key=ids.__getitem__):
        splits = ((piece[:at], piece[at:]) for at in range(1, len(piece)) if piece[:at] in ids)
        found = [split for split in splits if split[1] in ids]
        merged += len(found) * len(piece)
        if merged > MERGES_CHARACTERS_MAX:
            raise TokenizerUnknown(
                f"The merges have more than {MERGES_CHARACTERS_MAX} characters together."
            )
        yield from sorted(found, key=lambda split: (ids[split[0]], ids[split[1]]))


def merges_by_score(
    tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]
) -> tuple[str, ...]:
    """Return the merges of a vocabulary: of the greatest scores first, then of long pieces.

    So do transformers. The runs of spaces have one score, and grow from the left in this order.
    """
    ids = {text: i for i, text in enumerate(tokens) if types[i] == NORMAL}

    def rank(split: tuple[str, str]) -> tuple[float, int, int]:
        left, right = split
        return scores[ids[left + right]], len(left), len(right)

    return tuple(map(" ".join, sorted(splits_of(ids), key=rank, reverse=True)))


def missing_bytes(tokens: Sequence[str], types: Sequence[int]) -> frozenset[int]:
    """Return the byte values without a token of their own."""
    known = {_BYTE_OF.get(text) for text, kind in zip(tokens, types, strict=True) if kind == BYTE}
    return frozenset(set(range(256)) - known)


def token_bytes(text: str, kind: int) -> bytes:
    """Return the bytes of a token's text; a control token has none. Raises TokenizerUnknown."""
    if kind == BYTE:
        if text not in _BYTE_OF:
            raise TokenizerUnknown(f"The token {text!r} isn't one of a byte.")
        return bytes([_BYTE_OF[text]])
    if kind == NORMAL:
        return text.replace(SPACE, " ").encode()
    return text.encode() if kind == USER_DEFINED else b""


def backend(
    data: TokenizerData, vocabulary: dict[str, int], merges: Sequence[tuple[str, str]]
) -> Backend:
    """Build the library's tokenizer without control tokens. Raises TokenizerUnknown.

    A character without a piece is tokenised as its bytes, which are never merged.
    """
    if data.pre not in (SPACED, FIRST, PLAIN):
        raise TokenizerUnknown(f"A SentencePiece tokenizer has no pre-tokenizer {data.pre!r}.")
    _check_tokens(data)
    bytes_too = vocabulary | {
        text: i for i, text in enumerate(data.tokens) if data.types[i] == BYTE
    }
    with library_errors("vocabulary"):
        model = models.BPE(vocab=bytes_too, merges=list(merges), byte_fallback=True)
    built = Backend(model)
    built.normalizer = normalizers.Replace(" ", SPACE)
    return built


def _check_tokens(data: TokenizerData) -> None:
    """Raise TokenizerUnknown if a text could come out as the bytes of another."""
    if missing := missing_bytes(data.tokens, data.types):
        raise TokenizerUnknown(
            f"{len(missing)} bytes have no token, as {byte_token(min(missing))}."
        )
    if sum(map(is_byte_token, data.tokens)) > len(_BYTE_OF):
        raise TokenizerUnknown("Two tokens have the text of one byte's.")
    # The library would tokenise a space as the bytes of the character that stands for it.
    if dict(zip(data.tokens, data.types, strict=True)).get(SPACE) != NORMAL:
        raise TokenizerUnknown(f"The vocabulary has no piece {SPACE!r}, which stands for a space.")
