"""From tokens to what people see, held back where it may yet change (spec/07-host §4.2). Pure."""

from collections.abc import Iterable

from model_host.stop import PartialText, StopMatcher
from model_host.tokenizer import Tokenizer


class VisibleText:
    """The visible bytes of one run: whole characters, no stop strings, no control tokens."""

    def __init__(self, tokenizer: Tokenizer, stops: Iterable[str]) -> None:
        """Start a run. Raises StopInvalid."""
        self._tokenizer = tokenizer
        self._matcher = StopMatcher(stops)
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
