"""From tokens to what people see, held back where it may yet change (HOST-16 and HOST-17). Pure."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from model_host.stop import PartialText, StopMatcher, unfinished


class Decoder(Protocol):
    """The part of a tokenizer that turns tokens back into bytes."""

    def token_bytes(self, token_id: int) -> bytes:
        """Return the visible bytes of one token."""

    def decode_bytes(self, token_ids: Sequence[int]) -> bytes:
        """Return the visible bytes of tokens that follow one another."""


class VisibleText:
    """The visible bytes of one run: whole characters, no stop strings, no control tokens."""

    def __init__(
        self, tokenizer: Decoder, stops: Iterable[str], continued: Sequence[int] = ()
    ) -> None:
        """Start a run that goes on after the tokens `continued`. Raises StopInvalid.

        They may end inside a character, which nobody was shown: it comes out first.
        """
        self._tokenizer = tokenizer
        self._matcher = StopMatcher(stops, unfinished(tokenizer.decode_bytes(continued)))
        self._characters = PartialText()

    @property
    def stopped_by(self) -> str | None:
        """Return the stop string met, if any."""
        return self._matcher.stopped_by

    def push(self, token_id: int) -> bytes:
        """Take a token; return bytes that may be shown now.

        Bytes that are no UTF-8 come out as the replacement character.
        """
        shown = self._matcher.feed(self._tokenizer.token_bytes(token_id))
        return self._characters.feed(shown.text).encode()

    def finish(self) -> bytes:
        """Return what was held back and turns out to be plain text."""
        return self._characters.feed(self._matcher.finish()).encode()
