"""The calls in an answer, read from its visible text as it is generated (spec/07-host §8). Pure.

Text is shown until a call begins. From there on nothing is shown until the answer ends: what
is a call becomes a part of its own, the rest becomes visible text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from model_host.rendering import WHITE_SPACE, CallText, ToolFormat


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call in an answer; `offset` is the number of visible bytes before it."""

    offset: int
    name: str
    arguments_json: str


class Visible(Protocol):
    """The conversion of tokens to visible bytes; bytes that may yet change are held back."""

    def push(self, token_id: int) -> bytes:
        """Add a token; return the bytes that may be shown now."""

    def finish(self, *, can_continue: bool) -> bytes:
        """End the output; return the bytes held back that are plain text after all."""

    @property
    def stopped_by(self) -> str | None:
        """Return the stop string met, if any."""

    @property
    def calls(self) -> tuple[FoundCall, ...]:
        """Return the calls, once the output has ended."""

    @property
    def hidden_bytes(self) -> int:
        """Return the bytes of calls, and those held back, which may begin one."""


CALLS_MAX = 100
"""Calls of one answer; the rest of it is text. With texts between them they fit PARTS_MAX."""


class CallingText:
    """The visible bytes of an answer that may call tools."""

    def __init__(self, text: Visible, known: ToolFormat, continued: str = "") -> None:
        """Look for calls in `text`; `continued` is the text of the turn before this answer."""
        self._text = text
        self._format = known
        self._mark = known.call_begins.strip()
        self._hidden: str | None = None
        self._hidden_bytes = 0
        self._held = ""
        self._shown = 0
        self._skip = 0
        """Characters held back that the answer before has shown."""
        self._calls: list[FoundCall] = []
        self._may_begin = not continued.strip(WHITE_SPACE)
        self._continue_after(continued)

    @property
    def stopped_by(self) -> str | None:
        """Return the stop string met, if any."""
        return self._text.stopped_by

    @property
    def calls(self) -> tuple[FoundCall, ...]:
        """Return the calls, once the output has ended."""
        return tuple(self._calls)

    @property
    def hidden_bytes(self) -> int:
        """Return the bytes of calls, and those held back, which may begin one."""
        return self._hidden_bytes + len(self._held.encode())

    def push(self, token_id: int) -> bytes:
        """Add a token; return the bytes that may be shown now."""
        return self._feed(self._text.push(token_id))

    def finish(self, *, can_continue: bool) -> bytes:
        """End the output; return the bytes held back that are plain text after all.

        A call that has begun stays hidden if a later answer may complete it.
        """
        shown = self._feed(self._text.finish(can_continue=can_continue))
        if self._hidden is None:
            rest, self._held = self._held, ""
            return shown + self._show(rest)
        for piece in _pieces(self._hidden, self._format, with_open=not can_continue):
            if isinstance(piece, CallText):
                self._skip = 0  # the mark that the answer before began is no text any more
                self._calls.append(FoundCall(self._shown, piece.name, piece.arguments_json))
            elif piece.strip(WHITE_SPACE):
                shown += self._show(piece)
        return shown

    def _feed(self, data: bytes) -> bytes:
        text = data.decode()
        if self._hidden is not None:
            self._hidden += text
            self._hidden_bytes += len(data)
            return b""
        text, self._held = self._held + text, ""
        if not self._mark:
            return self._feed_unmarked(text)
        start = text.find(self._mark)
        if start >= 0:
            self._hide(text[start:])
            return self._show(text[:start])
        keep = _beginning_of(self._mark, text)
        self._held = text[len(text) - keep :]
        return self._show(text[: len(text) - keep])

    def _feed_unmarked(self, text: str) -> bytes:
        """Hide an answer that begins with a brace; there are no marks of calls."""
        if self._may_begin and not text.strip(WHITE_SPACE):
            self._held = text
            return b""
        if self._may_begin and _begins_with_brace(text):
            self._hide(text)
            return b""
        self._may_begin = False
        return self._show(text)

    def _continue_after(self, continued: str) -> None:
        """Take up a call, or the beginning of a mark, at the end of the answer before."""
        if self._mark:
            cut = _cut_call(continued, self._format)
            if cut:
                self._hide(cut)
                return
            self._skip = _beginning_of(self._mark, continued)
            self._held = continued[len(continued) - self._skip :]
        elif _begins_with_brace(continued) and self._format.read_call(continued) is None:
            self._hide(continued)

    def _hide(self, text: str) -> None:
        self._hidden, self._hidden_bytes = text, len(text.encode())

    def _show(self, text: str) -> bytes:
        data = text[self._skip :].encode()
        self._skip = max(0, self._skip - len(text))
        self._shown += len(data)
        return data


def _begins_with_brace(text: str) -> bool:
    return text.lstrip(WHITE_SPACE).startswith("{")


def _beginning_of(mark: str, text: str) -> int:
    """Return the number of last characters of a text that may begin a mark."""
    longest = min(len(mark) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if mark.startswith(text[-n:])), 0)


def _cut_call(text: str, known: ToolFormat) -> str:
    """Return the last call of a text from its mark on if it does not end, else nothing."""
    begins = known.call_begins.strip()
    while begins in text:
        _, mark, rest = text.partition(begins)
        end = _end_of_call(rest, known, is_whole=False)
        if end is None:
            return mark + rest
        text = rest[end:]
    return ""


def _end_of_call(text: str, known: ToolFormat, *, is_whole: bool) -> int | None:
    """Return the offset of the mark that ends a call; `text` begins behind the one before it.

    A mark in a string of JSON is part of the call. Where the answer is whole and no other mark
    is found, it was no call, and ends at the first one.
    """
    ends = known.call_ends.strip()
    for token in re.finditer(rf"{_STRING}|{re.escape(ends)}", text):
        if token[0] == ends:
            return token.start()
    first = text.find(ends) if is_whole else -1
    return None if first < 0 else first


_STRING = r'"(?s:[^"\\]|\\.)*+(?:"|\\?\Z)'
"""A string of JSON, also one that is cut at the end of the text."""


def _pieces(text: str, known: ToolFormat, *, with_open: bool) -> Iterator[CallText | str]:
    """Yield calls and the text around them; a call that does not end only `with_open`."""
    begins, ends = known.call_begins.strip(), known.call_ends.strip()
    if not begins:
        call = known.read_call(text)
        if call is not None or with_open:
            yield call or text
        return
    for _ in range(CALLS_MAX):
        if not text:
            return
        before, mark, rest = text.partition(begins)
        yield before
        if not mark:
            return
        end = _end_of_call(rest, known, is_whole=with_open)
        if end is None:
            if with_open:
                yield mark + rest
            return
        inner, text = rest[:end], rest[end + len(ends) :]
        yield known.read_call(inner) or mark + inner + ends
    yield text
