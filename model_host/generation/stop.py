"""Stop strings and whole characters in visible output (spec/07-host). Pure.

A stop string can end inside a token, and a token can end inside a character. So bytes that
may belong to a stop string, or to an unfinished character, are held back.
"""

import codecs
from collections.abc import Iterable
from dataclasses import dataclass

from model_host.refusals import StopInvalid
from replica.limits import STOP_STRING_BYTES_MAX, STOP_STRINGS_MAX


@dataclass(frozen=True, slots=True)
class Shown:
    """The bytes that may be shown after one token.

    `stop` is the stop string that ended the output, if any; its bytes are never shown.
    """

    text: bytes
    stop: str | None = None


class StopMatcher:
    """A search for the stop string that ends first; of several that end together, the longest.

    Call `feed` with the bytes of each token. After a match it is finished.
    """

    def __init__(self, stops: Iterable[str] = (), begun: bytes = b"") -> None:
        """Start with the stop strings, and the bytes of a character `begun` before the output.

        Raises StopInvalid.
        """
        self._stops = {stop.encode(): stop for stop in stops}
        if len(self._stops) > STOP_STRINGS_MAX:
            raise StopInvalid(f"{len(self._stops)} stop strings, more than {STOP_STRINGS_MAX}.")
        if any(not 0 < len(stop) <= STOP_STRING_BYTES_MAX for stop in self._stops):
            raise StopInvalid(f"A stop string has 1 to {STOP_STRING_BYTES_MAX} bytes.")
        self._longest = max(map(len, self._stops), default=0)
        self._held = begun
        self.stopped_by: str | None = None

    def feed(self, data: bytes, *, may_stop: bool = True) -> Shown:
        """Add the bytes of one token; return the bytes that may be shown now.

        Without `may_stop` no stop string ends in them; one that begins there may end later.
        """
        assert self.stopped_by is None, "a stop string ends the output"
        before, self._held = len(self._held), self._held + data
        found = self._find(before) if may_stop else None
        if found is not None:
            start, stop = found
            text, self._held, self.stopped_by = self._held[:start], b"", self._stops[stop]
            return Shown(text, self.stopped_by)
        return Shown(self._release(len(self._held) - self._undecided()))

    def finish(self) -> bytes:
        """Return the bytes held back at the end of the output.

        An unfinished character at the end is neither shown nor counted as visible.
        """
        text = self._release(len(self._held) - len(unfinished(self._held)))
        self._held = b""
        return text

    def _release(self, count: int) -> bytes:
        text, self._held = self._held[:count], self._held[count:]
        return text

    def _find(self, before: int) -> tuple[int, bytes] | None:
        """Return the offset and bytes of the stop string that ends first in the bytes held."""
        for end in range(before + 1, len(self._held) + 1) if self._stops else ():
            head = self._held[:end]
            ending = [stop for stop in self._stops if head.endswith(stop)]
            if ending:
                longest = max(ending, key=len)
                return end - len(longest), longest
        return None

    def _undecided(self) -> int:
        """Return the number of last bytes that may begin a stop string or character."""
        for count in range(min(self._longest - 1, len(self._held)), 0, -1):
            tail = self._held[-count:]
            if any(stop.startswith(tail) for stop in self._stops):
                # The character before the tail's first byte may be unfinished as well.
                return count + len(unfinished(self._held[:-count]))
        return len(unfinished(self._held))


def unfinished(data: bytes) -> bytes:
    """Return the last bytes that begin a UTF-8 character without ending it, 0 to 3 bytes.

    Bytes that can't become a character are not unfinished; they are invalid already.
    """
    for count in range(min(3, len(data)), 0, -1):
        tail = data[-count:]
        # Python's decoder takes the first two bytes of a surrogate for an unfinished character.
        if tail[0] < 0xC0 or (tail[0] == 0xED and tail[1:] >= b"\xa0"):
            continue
        try:
            text, _ = codecs.utf_8_decode(tail, "strict", False)
        except UnicodeDecodeError:
            continue
        if not text:
            return tail
    return b""


class PartialText:
    """An incremental decoder from bytes to text that holds back unfinished characters.

    The pieces together equal `bytes.decode("utf-8", "replace")` of all bytes, except for a
    character unfinished at the end.
    """

    def __init__(self) -> None:
        """Start at the beginning of a text."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        """Add the bytes of one token; return the characters that are complete now."""
        return self._decoder.decode(data)

    def finish(self, data: bytes) -> str:
        """Add the last bytes; nothing is held back, since no byte follows."""
        return self._decoder.decode(data, final=True)
