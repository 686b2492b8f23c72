"""calls.json: the text of an answer → its parts, and what its drafts show (spec/07-host §8)."""

import json
import re
from typing import Any

Vector = dict[str, Any]

MARKS = {"hermes": ("<tool_call>", "</tool_call>"), "llama3": None}
KEYS = {"hermes": "arguments", "llama3": "parameters"}
DEPTH_MAX, MARKS_MAX = 64, 100
_WHITE = " \t\n\r"
_SPACE = re.compile(f"[{_WHITE}]*")


class _NoCallError(Exception):
    """The text is no call."""


class _Json:
    """A reader of one JSON text that tells where values begin and end."""

    _ATOM = re.compile(
        r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
        r"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null"
    )

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def take(self, mark: str) -> bool:
        """Read a mark, if it comes next behind white space."""
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
        found = self.text.startswith(mark, self.at)
        self.at += len(mark) * found
        return found

    def need(self, mark: str) -> None:
        if not self.take(mark):
            raise _NoCallError

    def atom(self) -> str:
        """Read a string, number or word; return it as it is written."""
        self.take("")
        found = self._ATOM.match(self.text, self.at)
        if found is None:
            raise _NoCallError
        self.at = found.end()
        return found[0]

    def value(self, depth: int = 0) -> str:
        """Read a value; return it as it is written."""
        self.take("")
        begin = self.at
        for opens, closes in ("{}", "[]"):
            if self.take(opens):
                if depth == DEPTH_MAX:
                    raise _NoCallError
                more = not self.take(closes)
                while more:
                    if opens == "{":
                        self.need_string()
                        self.need(":")
                    self.value(depth + 1)
                    more = self.take(",")
                    if not more:
                        self.need(closes)
                return self.text[begin : self.at]
        return self.atom()

    def need_key(self, key: str) -> None:
        """Read a key of a call, as it is written."""
        if self.atom() != f'"{key}"':
            raise _NoCallError
        self.need(":")

    def need_string(self) -> str:
        written = self.atom()
        if written[0] != '"':
            raise _NoCallError
        return str(json.loads(written))


def _call(text: str, key: str) -> Vector:
    """Read the text of one call, without marks."""
    reader = _Json(text)
    reader.need("{")
    reader.need_key("name")
    name = reader.need_string()
    reader.need(",")
    reader.need_key(key)
    arguments = reader.value()
    reader.need("}")
    reader.take("")
    if reader.at != len(text) or arguments[0] != "{" or re.search("[\ud800-\udfff]", name):
        raise _NoCallError
    return {"tool_call": {"name": name, "arguments_json": arguments}}


def _end_of(text: str, ends: str, *, whole: bool) -> int:
    """Return where the end mark of a call is, -1 for nowhere."""
    is_string, at = False, 0
    while at < len(text):
        if not is_string and text.startswith(ends, at):
            return at
        is_string ^= text[at] == '"'
        at += 2 if is_string and text[at] == "\\" else 1
    return text.find(ends) if whole else -1


def _pieces(text: str, form: str, *, whole: bool) -> list[Vector]:
    """Return the calls and texts of an answer from its first mark on."""
    marks, found = MARKS[form], list[Vector]()
    if marks is None:
        try:
            return [_call(text, KEYS[form])]
        except _NoCallError:
            return [{"text": text}] if whole else []
    begins, ends = marks
    for _ in range(MARKS_MAX):
        before, mark, rest = text.partition(begins)
        found.append({"text": before})
        if not mark:
            return found
        end = _end_of(rest, ends, whole=whole)
        if end < 0:
            return [*found, {"text": mark + rest}] if whole else found
        inner, text = rest[:end], rest[end + len(ends) :]
        try:
            found.append(_call(inner, KEYS[form]))
        except _NoCallError:
            found.append({"text": mark + inner + ends})
    return [*found, {"text": text}]


def _begins_bare(text: str) -> bool:
    return text.lstrip(_WHITE).startswith("{")


def _is_cut_bare(text: str, key: str) -> bool:
    """Say whether a later answer may complete this text to a call without marks."""
    try:
        _call(text, key)
    except _NoCallError:
        return _begins_bare(text)
    return False


def _begun(before: str, form: str) -> tuple[str, int]:
    """Return what an answer takes up from the one that it continues, and how much was shown."""
    marks = MARKS[form]
    if marks is None:
        return (before if _is_cut_bare(before, KEYS[form]) else "", 0)
    rest = before
    while marks[0] in rest:
        _, mark, rest = rest.partition(marks[0])
        end = _end_of(rest, marks[1], whole=False)
        if end < 0:
            return mark + rest, 0
        rest = rest[end:]
    begun = _held(before, marks[0])
    return before[len(before) - begun :], begun


def _held(text: str, mark: str) -> int:
    """Return how many of the last characters may begin a mark."""
    return next((n for n in range(len(mark) - 1, 0, -1) if text.endswith(mark[:n])), 0)


def _read(text: str, form: str, *, whole: bool, is_first: bool) -> tuple[list[Vector], str]:
    """Return the pieces of an answer, and the text that its drafts show before it ends."""
    marks = MARKS[form]
    if marks is not None and marks[0] in text:
        start = text.index(marks[0])
        shown = text[:start]
    elif marks is None and is_first and _begins_bare(text):
        start, shown = 0, ""
    else:
        held = _held(text, marks[0]) if marks is not None else 0
        is_space = marks is None and is_first and not text.strip(_WHITE)
        return [{"text": text}], "" if is_space else text[: len(text) - held]
    later = _pieces(text[start:], form, whole=whole)
    kept = [piece for piece in later if "text" not in piece or piece["text"].strip(_WHITE)]
    return [{"text": text[:start]}, *kept], shown


def _parts(text: str, form: str, *, whole: bool, before: str) -> tuple[list[Vector], str]:
    """Return the parts of an answer, and the text that its drafts show before it ends."""
    taken_up, known = _begun(before, form)
    is_first = bool(taken_up) or not before.strip(_WHITE)
    pieces, shown = _read(taken_up + text, form, whole=whole, is_first=is_first)
    first = next((piece for piece in pieces if piece.get("text") != ""), {})
    if "text" in first:
        first["text"] = first["text"][known:]
    parts = list[Vector]()
    for piece in pieces:
        if "text" in piece and parts and "text" in parts[-1]:
            parts[-1] = {"text": parts[-1]["text"] + piece["text"]}
        elif piece.get("text") != "":
            parts.append(piece)
    return parts, shown[known:]


BODY = '{"name": "f", "arguments": {"x": 1}}'
CALL = f"<tool_call>\n{BODY}\n</tool_call>"
BARE = BODY.replace("arguments", "parameters")


def _marked(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def _deep(depth: int) -> str:
    return _marked(BODY.replace("1", "[" * (depth - 1) + "]" * (depth - 1)))


IN_STRING = _marked(BODY.replace("1", r'"</tool_call> \" <tool_call>"'))
HERMES: tuple[tuple[str, str, str, bool], ...] = (
    ("none", "no call", "Hello.\n", True),
    ("alone", "a call alone", CALL, True),
    ("behind", "text before it is shown at once", f"Wait.\n{CALL}", True),
    ("several", "white space between and behind calls is no text, and other text is all of it",
     f"{CALL}\n{CALL} and {CALL}\n", True),
    ("unspaced", "without line feeds", f"<tool_call>{BODY}</tool_call>", True),
    ("spaced", "with other white space", _marked('\t{ "name" :"f",\n"arguments":{"x":1} } '),
     True),
    ("key-escaped", "a key that is not written as itself",
     _marked('{"na\\u006de": "f", "arguments": {}}'), True),
    ("no-break", "only the white space of JSON is left out, or lies between tokens",
     f"{CALL}\u00a0{CALL}" + _marked(f"{BODY}\u00a0"), True),
    ("as-written", "arguments stay as they are written",
     _marked('{"name": "\\u0066", "arguments": {"b": 1e2, "b": -0.50,  "a": "\\u00e9"}}'), True),
    ("in-string", "a mark in a string of JSON", f"{IN_STRING}{CALL}", True),
    ("string-open", "a string that does not end: the first end mark of a whole answer",
     f'<tool_call>\n{{"name": "f\n</tool_call>\n{CALL}', True),
    ("string-open-cut", "of an answer that may go on, none", 'Hm.<tool_call>\n{"name": "f\n'
     "</tool_call>", False),
    ("turned", "the arguments before the name", _marked('{"arguments": {}, "name": "f"}'), True),
    ("more", "a third member", _marked('{"name": "f", "arguments": {}, "id": 1}'), True),
    ("fewer", "no arguments", _marked('{"name": "f"}'), True),
    ("other-key", "the key of the other format", _marked(BARE), True),
    ("no-object", "arguments that are no object", _marked('{"name": "f", "arguments": [1]}'), True),
    ("no-string", "a name that is no string", _marked('{"name": 1, "arguments": {}}'), True),
    ("surrogate", "a name that no UTF-8 has", _marked('{"name": "\\ud800", "arguments": {}}'),
     True),
    ("not-a-number", "no JSON", _marked('{"name": "f", "arguments": {"x": NaN}}'), True),
    ("two-in-one", "two objects between two marks", _marked(f"{BODY}\n{BODY}"), True),
    ("deep", "64 containers inside each other", _deep(64), True),
    ("deeper", "65", _deep(65), True),
    ("open", "no end mark", f"Hm.\n<tool_call>\n{BODY}", True),
    ("open-cut", "of an answer that may go on", f"Hm.\n{CALL}\n<tool_call>\n{BODY}", False),
    ("mark-begun", "the beginning of a mark is held back to the end", "Hm.\n<tool_", True),
    ("end-alone", "an end mark alone is text", "Hm.</tool_call>", True),
    ("void-behind", "white space behind marks of no call is no text", "<tool_call></tool_call> ",
     True),
    ("void-between", "nor between such marks",
     "<tool_call>{}</tool_call> <tool_call>{}</tool_call>", True),
    ("many", "100 marks are read, and the next call is text",
     '<tool_call>{"name":"f","arguments":{}}</tool_call>' * 101, True),
)  # fmt: skip
LLAMA3: tuple[tuple[str, str, str, bool], ...] = (
    ("bare", "an answer that begins with a brace is a call", BARE, True),
    ("bare-spaced", "behind white space", f"\n {BARE}\n", True),
    ("bare-behind", "no call behind text", f"Hm. {BARE}", True),
    ("bare-more", "nor with text behind it", f"{BARE} Done.", True),
    ("bare-other-key", "the key of the other format", BODY, True),
    ("bare-cut", "an answer that may go on shows nothing of it", BARE[:-3], False),
    ("bare-no-break", "other white space than that of JSON is text", f"\u00a0{BARE}", True),
    ("bare-whole-cut", "a call that is whole, in an answer that was cut behind it", BARE, False),
    ("bare-space", "white space alone is held back to the end", " \n", True),
)  # fmt: skip

CONTINUED: tuple[tuple[str, str, str, str, str], ...] = (
    ("call-continued", "a cut call is in the answer that continues it", "hermes",
     f"Hm.\n{CALL[:30]}", f"{CALL[30:]} Done."),
    ("call-continued-not", "and is text there, if it turns out to be none", "hermes",
     "Hm.\n<tool_call>\n{}", "\n</tool_call>"),
    ("mark-continued", "a mark that the answer before began, and showed", "hermes", "Hm.\n<tool_",
     f"call>\n{BODY}\n</tool_call>"),
    ("mark-continued-not", "one that is none", "hermes", "Hm.\n<tool_", "box> Done."),
    ("mark-continued-text", "one of no call", "hermes", "Hm.\n<tool_", "call>\n{}\n</tool_call>"),
    ("bare-continued", "without marks", "llama3", BARE[:9], BARE[9:]),
    ("bare-continued-behind", "text behind a call that the answer before had as a whole", "llama3",
     BARE, " Done."),
    ("bare-continued-not", "no call behind text of the answer before", "llama3", "Hm.", BARE),
)  # fmt: skip


def build() -> Vector:
    """Return the file."""
    vectors = []

    def add(name: str, comment: str, form: str, before: str, text: str, *, whole: bool) -> None:
        parts, shown = _parts(text, form, whole=whole, before=before)
        given = {"name": name, "comment": comment, "format": form, "before": before, "text": text}
        vectors.append(given | {"whole": whole, "shown": shown, "parts": parts})

    for form, cases in (("hermes", HERMES), ("llama3", LLAMA3)):
        for name, comment, text, whole in cases:
            add(name, comment, form, "", text, whole=whole)
    for name, comment, form, before, text in CONTINUED:
        add(name, comment, form, before, text, whole=True)
    return {
        "file": "calls",
        "spec": "spec/07-host §8",
        "comment": "`text`: what the tokens of an answer with tools in effect say; `before`: those"
        " of the turn that it continues; `whole`: no later answer continues it. `shown`: what"
        " drafts show of it before it ends. `parts` of the GENERATION, without call ids.",
        "vectors": vectors,
    }
