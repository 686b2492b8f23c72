"""text.json: the bytes of an answer's tokens → what is visible of them (spec/07-host §4)."""

import re
from collections.abc import Iterable
from typing import Any

from spec.vectors.make.misread import misread

Vector = dict[str, Any]

_TAIL = b"[\x80-\xbf]"
_CHARACTERS = (  # the forms of UTF-8: a first byte, the range of a second, the bytes behind it
    (b"[\xc2-\xdf]", _TAIL, 0),
    (b"\xe0", b"[\xa0-\xbf]", 1),
    (b"[\xe1-\xec\xee\xef]", _TAIL, 1),
    (b"\xed", b"[\x80-\x9f]", 1),
    (b"\xf0", b"[\x90-\xbf]", 2),
    (b"[\xf1-\xf3]", _TAIL, 2),
    (b"\xf4", b"[\x80-\x8f]", 2),
)
_LATER = (
    b"(?:"
    + b"|".join(
        first + b"(?:" + second + _TAIL + b"{0,%d})?" % more for first, second, more in _CHARACTERS
    )
    + b")"
)
_SURROGATE = b"(?:" + _LATER + b"|\xed[\xa0-\xbf])"
ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
RULES = (
    "A turn ends with the EOS token of the tokenizer; with each id that `eos_token_id` of"
    " config.json names, or a GGUF as EOS, EOT or EOM; and with each control token whose text"
    f" is {', '.join(ENDS[:-1])} or {ENDS[-1]}. No other file counts.",
)
END_READINGS = {
    "named": "what the files list does not count",
    "listed": "names do not count",
    "no-eos": "the EOS token does not count",
    "controls": "type 4 is no control token",
    "words": "names of other tokens count",
}
READINGS = {
    "shown": "a character left unfinished is shown",
    "surrogate": "the first bytes of a surrogate are an unfinished character",
    "bytes": "each broken byte is shown as U+FFFD",
    "apart": "a continuation begins with no byte of the answer before",
    "held": "a continuation begins with the bytes held back for a stop string too",
    "begins-first": "the stop string that begins first counts",
    "shortest": "of stop strings that end together the shortest counts",
    "in-text": "stop strings are looked for in the text that is shown",
    "early": "a stop string that ends early ends the answer",
    "output": "the least index counts from the start of the output",
}


def _unfinished(data: bytes, reading: str) -> bytes:
    """Return the last bytes that begin a character without ending it."""
    for count in range(min(3, len(data)), 0, -1):
        tail = data[-count:]
        begins = re.fullmatch(_SURROGATE if reading == "surrogate" else _LATER, tail)
        if begins and "\ufffd" in tail.decode(errors="replace"):
            return tail
    return b""


def _found(data: bytes, before: int, stops: Iterable[str], reading: str) -> tuple[int, str] | None:
    """Return the place and the text of the stop string that ends the answer behind `before`."""
    found = [
        (end, end - len(stop.encode()), stop)
        for stop in stops
        for end in range(before + 1, len(data) + 1)
        if data[:end].endswith(stop.encode())
    ]
    order = {"begins-first": (1, 0), "shortest": (0, -1)}.get(reading, (0, 1))
    ranks = {0: lambda f: f[0], 1: lambda f: f[1], -1: lambda f: -f[1]}
    ranked = sorted(found, key=lambda each: [ranks[rule](each) for rule in order])
    return ranked[0][1:] if ranked else None


def _held(data: bytes, stops: Iterable[str]) -> bytes:
    """Return the last bytes that begin a stop string."""
    begun = (s.encode()[:n] for s in stops for n in range(1, len(s.encode())))
    return max((one for one in begun if data.endswith(one)), key=len, default=b"")


def visible(
    before: list[bytes], tokens: list[bytes], stops: list[str], least: int, reading: str = ""
) -> tuple[str, str | None, int]:
    """Return the visible text, the stop string met, and the tokens of the answer."""
    earlier = b"".join(before)
    data = b"" if reading == "apart" else _unfinished(earlier, reading)
    if reading == "held":
        data = _held(earlier, stops) or data
    index = 0 if reading == "output" else len(before)
    for count, token in enumerate(tokens, 1):
        start, data = len(data), data + token
        if index + count > least or reading == "early":
            shown = data.decode(errors="replace").encode() if reading == "in-text" else data
            met = _found(shown, start, stops, reading)
            if met is not None:
                return _text(shown[: met[0]], reading), met[1], count
    left = 0 if reading == "shown" else len(_unfinished(data, reading))
    return _text(data[: len(data) - left], reading), None, len(tokens)


def _text(data: bytes, reading: str) -> str:
    if reading != "bytes":
        return data.decode(errors="replace")
    escaped = data.decode(errors="surrogateescape")
    return "".join("\ufffd" if "\udc80" <= one <= "\udcff" else one for one in escaped)


def _vector(
    name: str,
    comment: str,
    tokens: list[bytes],
    *stops: str,
    before: tuple[bytes, ...] = (),
    least: int = 0,
) -> Vector:
    text, met, count = right = visible([*before], tokens, [*stops], least)
    wrong = {
        words: visible([*before], tokens, [*stops], least, reading)
        for reading, words in READINGS.items()
    }
    return {
        "name": name,
        "comment": comment,
        "before": [token.hex() for token in before],
        "tokens": [token.hex() for token in tokens],
        "stop": [*stops],
        "output_tokens_min": least,
        "text": text,
        "visible_bytes": len(text.encode()),
        "stopped_by": met,
        "output_tokens": count,
        "misread": misread(text, {w: r[0] for w, r in wrong.items() if r[0] != right[0]}),
    }


def _characters() -> list[Vector]:
    return [
        _vector("whole", "characters of one token each", [b"h", "é".encode(), "€".encode()]),
        _vector("pieces", "a character in two tokens, a control token between them",
                [b"\xc3", b"", b"\xa9"]),
        _vector("unfinished", "a character left unfinished is not visible", [b"a", b"\xe2\x82"]),
        _vector("continued", "the answer that continues this one begins with it", [b"\xac!"],
                before=(b"a", b"\xe2\x82")),
        _vector("continued-not", "and shows it as broken, if it is", [b"!"],
                before=(b"a", b"\xe2\x82")),
        _vector("broken", "bytes that begin no character", [b"a\xff", b"\x80\xc0b"]),
        _vector("subpart", "one U+FFFD for the beginning of a character", [b"\xf0\x9f\x98", b"a"]),
        _vector("twice-begun", "the first is broken, the second may still become a character",
                [b"\xf3", b"\xf3\x9f"]),
        _vector("overlong", "no character begins so", [b"\xe0\x80"]),
        _vector("beyond", "nor so, behind U+10FFFF", [b"\xf4\x90"]),
        _vector("surrogate", "nor so: two broken bytes, also at the end", [b"a", b"\xed\xa0"]),
        _vector("surrogate-continued", "which the answer that continues this one does not repeat",
                [b"\x80", b"b"], before=(b"a", b"\xed\xa0")),
    ]  # fmt: skip


def _stops() -> list[Vector]:
    return [
        _vector("stop", "a stop string within a token", [b"a##b"], "##"),
        _vector("stop-pieces", "one over the borders of tokens", [b"a#", b"", b"#b", b"c"], "##"),
        _vector("stop-begun", "the beginning of one is visible at the end", [b"a#"], "##"),
        _vector("stop-first", "the one that ends first", [b"abc d"], "bc d", "c"),
        _vector("stop-longest", "of two that end together the longest", [b"abc"], "c", "bc"),
        _vector("stop-bytes", "U+FFFD that stands for bytes is none", [b"a\xff"], "\ufffd"),
        _vector("stop-broken", "bytes that a stop string breaks are shown", [b"a\xf3", b"##"],
                "##"),
        _vector("stop-character", "one that begins with the unfinished character", [b"\xa9b"], "é",
                before=(b"\xc3",)),
        _vector("stop-continued", "one that the answer before began, and showed, is none", [b"#a"],
                "##", before=(b"a", b"#")),
        _vector("early", "one that ends before the least index", [b"##", b"a", b"##"], "##",
                least=2),
        _vector("early-begun", "one that begins before it", [b"#", b"#"], "##", least=1),
        _vector("early-turn", "the index counts from the start of the turn", [b"##", b"a##"], "##",
                before=(b"a", b"b"), least=3),
        _vector("early-turn-over", "which the answer before may have reached", [b"##"], "##",
                before=(b"a", b"b"), least=2),
    ]  # fmt: skip


def turn_ends(
    tokens: list[str], types: list[int], eos_id: int | None, listed: list[int], reading: str = ""
) -> list[int]:
    """Return the ids with which a model ends a turn, by the rules."""
    given = [] if reading == "named" else listed
    given = [*given, eos_id] if eos_id is not None and reading != "no-eos" else given
    kinds = (1, 6, 4) if reading == "controls" else (1, 6)
    is_read = reading != "listed"
    named = [
        i for i, text in enumerate(tokens)
        if is_read and text in ENDS and (types[i] not in kinds or reading == "words")
    ]  # fmt: skip
    return sorted({*given, *named})


def _end(
    name: str, comment: str, tokens: dict[str, int], eos: str | None = None, *listed: str
) -> Vector:
    texts, types = list(tokens), list(tokens.values())
    given = texts, types, texts.index(eos) if eos is not None else None, [*map(texts.index, listed)]
    right = turn_ends(*given)
    wrong = {words: turn_ends(*given, reading) for reading, words in END_READINGS.items()}
    return {
        "name": name, "comment": comment, "tokens": texts, "types": types, "eos_id": given[2],
        "listed_ids": given[3], "ends": right,
        "misread": {words: ids for words, ids in wrong.items() if ids != right},
    }  # fmt: skip


def _ends() -> list[Vector]:
    return [
        _end("eos", "the EOS token alone", {"a": 1, "</s>": 3}, "</s>"),
        _end("eos-of-text", "an EOS token that is none of control", {"a": 1, "end": 1}, "end"),
        _end("none", "a vocabulary that names no end", {"a": 1, "<s>": 3}),
        _end(
            "listed", "the files list several",
            {"a": 1, "</s>": 3, "<end>": 3, "<call>": 3}, "</s>", "<end>", "<call>",
        ),
        _end("named", "control tokens by their names", {"a": 1, **dict.fromkeys(ENDS, 3)}),
        _end("user-defined", "type 4 is one of control", {"</s>": 3, "<|eom_id|>": 4}, "</s>"),
        _end("text", "tokens of types 1 and 6", {"<|im_end|>": 1, "<|eot_id|>": 6}),
    ]  # fmt: skip


def build() -> dict[str, object]:
    """Return the file."""
    vectors, ends = [*_characters(), *_stops()], _ends()
    told = {words for end in ends for words in end["misread"]}
    assert set(END_READINGS.values()) <= told, set(END_READINGS.values()) - told
    told = {reading for vector in vectors for reading in vector["misread"]}
    assert set(READINGS.values()) <= told, set(READINGS.values()) - told
    return {
        "file": "text",
        "spec": "spec/07-host §4",
        "comment": "`tokens`: the bytes of an answer's tokens, none of a control token; `before`:"
        " those of the turn that it continues; the stop strings and the least index of its request"
        " → the visible `text`, `visible_bytes`, the stop string that ended it, and how many"
        " tokens it has. `misread`: the text that a misreading would give. `ends`: the texts and"
        " types of a vocabulary, its `eos_id` and the ids that the files list → those that end a"
        " turn.",
        "rules": list(RULES),
        "vectors": vectors,
        "ends": ends,
    }
