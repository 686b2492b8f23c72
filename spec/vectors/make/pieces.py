"""A small SentencePiece tokenizer by the text of spec/07-host §2 alone, and texts of it."""

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from spec.vectors.make.build import sha256

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"
SPACED, FIRST, PLAIN = PRE = "spaced", "first", "plain"
RULES = (
    "Pieces are the tokens of type 1; U+2581 in them stands for a space.",
    "The merges are all splits of a piece into two pieces, as `left right`. Of a GGUF they come by"
    " the score of the whole, then the length of the left part, then that of the right part, in"
    " characters, each the greatest first; else by the id of the whole, of the left part and of the"
    " right part, each the least first. Of a tokenizer.json they come in its order.",
    "A text is a row of symbols: U+2581 for a space; a character that is a piece; the tokens of its"
    " bytes, `<0x00>` to `<0xFF>` of type 6, for any other, and for U+2581 itself.",
    "As long as any two symbols side by side are a merge, the earliest merge of the list is"
    " performed, at its first place from the left. Tokens of bytes are never merged.",
    "Under `spaced`, text behind a control token and at the beginning of a context begins with a"
    " space, in a literal and in the text of a message; a space that stands there already is that"
    " one. Under `first`, text at the beginning of a context alone does. A literal counts alone:"
    " what is before it is not looked at. The text of a message is that with which it opens a turn,"
    " behind the literal of this turn, as with a space that ends a literal; no other content is.",
    "Under `spaced` and `first`, a space that is the first byte of an answer's turn is no part of"
    " its text: not visible, and read by no stop string, call or grammar. The token that has it"
    " may be chosen wherever the rest of its bytes may be, or some text if there is no rest.",
    "A piece has the bytes of its text with spaces in place of U+2581, a token of type 6 its byte.",
)
READINGS = {
    "typed-bytes": "a typed token of a byte is that byte",
    "typed-control": "typed control tokens are control tokens",
    "typed-mark": "the character that stands for a space is one where it is typed",
    "longest": "the longest piece at each place is taken",
    "spaced-twice": "a space comes before a space behind a control token too",
    "spaced-first": "a text begins with a space",
    "unspaced-beginning": "the beginning of a context has no space",
    "unmerged": "scores do not count",
}
ANSWER_READINGS = {
    "shown": "the space is visible",
    "every": "a continuation hides a space too",
    "all": "all spaces at the beginning are hidden",
    "token": "a space is hidden in the first token alone, be it a control token",
}

_SPECIAL = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL, "[END]": CONTROL, "<tool>": 4}
_BYTES = [f"<0x{value:02X}>" for value in range(256)]
_RUN = -1e9
# In the order of their ids; runs of spaces have one score, below all others.
_PIECES = {
    2 * SPACE: _RUN, 4 * SPACE: _RUN, f"{SPACE}t": -1.0, "he": -2.0, f"{SPACE}the": -3.0,
    "in": -4.0, "re": -5.0, f"{SPACE}a": -6.0, "er": -7.0, 8 * SPACE: _RUN, "here": -8.0,
    f"{SPACE}there": -9.0, 3 * SPACE: _RUN, "END": -10.0, "ND": -11.0, "the": -12.0, "0x": -13.0,
    5 * SPACE: _RUN, 6 * SPACE: _RUN, 7 * SPACE: _RUN, "é": -14.0,
}  # fmt: skip
_SINGLE = [*dict.fromkeys("".join(_PIECES) + "<>[]/AEsu:.\n")]
TOKENS = (*_SPECIAL, *_BYTES, *_PIECES, *(c for c in _SINGLE if c not in _PIECES), "unused")
TYPES = (
    *_SPECIAL.values(),
    *(BYTE for _ in _BYTES),
    *(NORMAL for _ in range(len(TOKENS) - len(_SPECIAL) - len(_BYTES) - 1)),
    UNUSED,
)
SCORES = tuple(_PIECES.get(token, -20.0) for token in TOKENS)
_IDS = {token: index for index, token in enumerate(TOKENS)}
_NORMAL = {token for token, kind in zip(TOKENS, TYPES, strict=True) if kind == NORMAL}
_FOUND = [t for t, kind in zip(TOKENS, TYPES, strict=True) if kind in (CONTROL, USER_DEFINED)]


def merges() -> list[str]:
    """Return all splits of all pieces, in the order of merging."""
    found = []
    for piece in sorted(_NORMAL, key=_IDS.__getitem__):
        splits = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        known = [one for one in splits if set(one) <= _NORMAL]
        found += sorted(known, key=lambda one: (_IDS[one[0]], _IDS[one[1]]))
    found.sort(key=lambda one: (-SCORES[_IDS["".join(one)]], -len(one[0]), -len(one[1])))
    return list(map(" ".join, found))


_RANKS = {merge: rank for rank, merge in enumerate(merges())}


def canonical(pre: str) -> str:
    """Return the JSON that the digest covers."""
    parts = ["llama", pre, TOKENS, TYPES, merges()]
    return json.dumps(parts, ensure_ascii=True, separators=(",", ":"))


def token_bytes(token: int) -> bytes:
    """Return the bytes of a token in an answer."""
    text, kind = TOKENS[token], TYPES[token]
    if kind == BYTE:
        return bytes([_BYTES.index(text)])
    if kind == NORMAL:
        return text.replace(SPACE, " ").encode()
    return text.encode() if kind == USER_DEFINED else b""


def encode(text: str, reading: str = "") -> list[int]:
    """Tokenise content."""
    if reading == "typed-control" and any(one in text for one in _FOUND):
        return encode_literal(text, PLAIN)
    if reading == "typed-bytes" and (found := re.search(r"<0x[0-9A-F]{2}>", text)):
        before, after = text[: found.start()], text[found.end() :]
        return [*encode(before), _IDS[found.group()], *encode(after)]
    symbols: list[str] = []
    for character in (" " if reading == "spaced-first" else "") + text:
        if character == " " or (reading == "typed-mark" and character == SPACE):
            symbols.append(SPACE)
        elif character in _NORMAL and character != SPACE:
            symbols.append(character)
        else:
            symbols += [_BYTES[byte] for byte in character.encode()]
    return [_IDS[symbol] for symbol in _merged(symbols, reading)]


def _merged(symbols: list[str], reading: str) -> list[str]:
    if reading == "longest":
        return _longest(symbols)
    while True:
        pairs = [f"{a} {b}" for a, b in pairwise(symbols)]
        known = [(_RANKS[pair], at) for at, pair in enumerate(pairs) if pair in _RANKS]
        if not known:
            return symbols
        _, at = min(known, key=lambda each: each[1]) if reading == "unmerged" else min(known)
        symbols[at : at + 2] = ["".join(symbols[at : at + 2])]


def _longest(symbols: list[str]) -> list[str]:
    found, at = list[str](), 0
    while at < len(symbols):
        ends = range(len(symbols), at, -1)
        end = next(e for e in ends if e == at + 1 or "".join(symbols[at:e]) in _NORMAL)
        found.append("".join(symbols[at:end]))
        at = end
    return found


def encode_literal(text: str, pre: str, reading: str = "", *, begins: bool = False) -> list[int]:
    """Tokenise a literal, with which a context `begins`."""
    split = "|".join(map(re.escape, sorted(_FOUND, key=len, reverse=True)))
    ids: list[int] = []
    is_known = begins and reading != "unspaced-beginning"
    for number, piece in enumerate(re.split(f"({split})", text)):
        if number % 2:
            ids.append(_IDS[piece])
        elif piece:
            needs = piece[0] != " " or reading == "spaced-twice"
            is_open = pre == SPACED if number > 0 else is_known and pre != PLAIN
            is_spaced = is_open and needs
            ids += encode(" " + piece if is_spaced else piece)
    return ids


def _shown(ids: Iterable[int]) -> list[str]:
    return [TOKENS[token] for token in ids]


def _vector(
    name: str, comment: str, text: str, *, literal: bool = False, begins: bool = False
) -> dict[str, object]:
    flags = {"literal": literal, "begins": begins}
    found: dict[str, object] = {"name": name, "comment": comment, "text": text, **flags}

    def ids(pre: str, reading: str = "") -> list[int]:
        if literal:
            return encode_literal(text, pre, reading, begins=begins)
        return encode(text, reading)

    right = {pre: ids(pre) for pre in PRE}
    wrong = {words: ids(SPACED, reading) for reading, words in READINGS.items()}
    return found | {
        "tokens": _shown(right[SPACED]),
        "ids": right,
        "misread": {words: ids for words, ids in wrong.items() if ids != right[SPACED]},
    }


def answer_text(before: list[str], tokens: list[str], pre: str, reading: str = "") -> str:
    """Return the text that an answer of whole characters adds to its turn."""
    texts = [token_bytes(_IDS[token]).decode() for token in (*before, *tokens)]
    if pre != PLAIN and reading != "shown" and any(texts):
        first = 0 if reading == "token" else next(i for i, text in enumerate(texts) if text)
        texts[first] = texts[first].removeprefix(" ")
        if reading == "all":
            texts = [text.lstrip(" ") for text in texts]
    added = "".join(texts[len(before) :])
    return added.removeprefix(" ") if before and pre != PLAIN and reading == "every" else added


def _answer(name: str, comment: str, *tokens: str, before: tuple[str, ...] = ()) -> dict[str, Any]:
    right = {pre: answer_text([*before], [*tokens], pre) for pre in PRE}
    wrong = {
        words: answer_text([*before], [*tokens], SPACED, reading)
        for reading, words in ANSWER_READINGS.items()
    }
    return {
        "name": name,
        "comment": comment,
        "before": [_IDS[token] for token in before],
        "ids": [_IDS[token] for token in tokens],
        "text": right,
        "misread": {words: text for words, text in wrong.items() if text != right[SPACED]},
    }


def _answers() -> list[dict[str, Any]]:
    the, there = f"{SPACE}the", f"{SPACE}there"
    return [
        _answer("answer", "the space of the first piece", the, there),
        _answer("answer-bare", "a first piece without one", "the", there),
        _answer("answer-line", "a space behind a line's end is one", "\n", the),
        _answer("answer-indented", "one space of many", 4 * SPACE, "the"),
        _answer("answer-apart", "a space that is a piece", SPACE, the),
        _answer("answer-byte", "a space that is a byte", "<0x20>", "the"),
        _answer("answer-control", "a control token has no bytes", "[END]", the),
        _answer("answer-continued", "the turn began before", there, before=(the,)),
        _answer("answer-continued-space", "with a space that was hidden", the, before=(SPACE,)),
        _answer("answer-continued-none", "with no bytes so far", the, before=("[END]",)),
    ]


def build() -> dict[str, object]:
    """Return the file."""
    vectors = [
        _vector("words", "pieces are merged by score, not by length", "there in here, inherent"),
        _vector("runs", "runs of spaces grow from the left",
                "".join(" " * n + "u" for n in range(1, 12))),
        _vector("bytes", "a character without a piece is its bytes", "é \u00e0 \U0001f98a 5"),
        _vector("mark", "so is the character that stands for a space", f"a{SPACE}the the"),
        _vector("typed", "control tokens and tokens of bytes are text where they are typed",
                "<0x0A></s>[END]<tool><unk>"),
        _vector("opens", "a text that opens with no space has none", "the"),
        _vector("literal", "control tokens of a literal, and text behind them",
                "the<s>the</s></s> the[END]\n<tool>in<unk>", literal=True),
        _vector("literal-ends", "a literal that ends with one", " the in<s>", literal=True),
        _vector("begins", "a literal with which a context begins", "the<s>the", literal=True,
                begins=True),
        _vector("begins-spaced", "one that begins with a space", " the", literal=True,
                begins=True),
        _vector("begins-control", "one that begins with a control token", "<s>the", literal=True,
                begins=True),
    ]  # fmt: skip
    told = {words for vector in vectors for words in vector["misread"]}  # type: ignore[attr-defined]
    assert set(READINGS.values()) <= told, set(READINGS.values()) - told
    answers = _answers()
    told = {words for answer in answers for words in answer["misread"]}
    assert set(ANSWER_READINGS.values()) <= told, set(ANSWER_READINGS.values()) - told
    return {
        "file": "pieces",
        "spec": "spec/07-host §2",
        "comment": "`pieces`, a SentencePiece tokenizer: `scores` are those of a GGUF, from which"
        " `merges` follow; `bytes` are those of each token, and `digests` the tokenizer's by its"
        " pre-tokenizer. A vector: a text, which is a content or a `literal`, with which a"
        " context `begins` or not, and its `ids` by the pre-tokenizer. `misread`: the ids under"
        " `spaced` that a misreading would give. An answer: the ids of its turn `before` it, its"
        " own `ids`, and the `text` they add by the pre-tokenizer.",
        "rules": list(RULES),
        "pieces": {
            "model": "llama",
            "tokens": list(TOKENS),
            "types": list(TYPES),
            "scores": list(SCORES),
            "merges": merges(),
            "bytes": [token_bytes(token).hex() for token in range(len(TOKENS))],
            "digests": {
                pre: sha256(b"antiphon/v1/tokenizer\0" + canonical(pre).encode()).hex()
                for pre in PRE
            },
        },
        "vectors": vectors,
        "answers": answers,
    }
