"""The visible text of a run; bytes that may yet change are held back (HOST-16, HOST-17). Pure."""

from collections.abc import Iterable, Sequence

from model_host.generation.calls import FoundCall
from model_host.generation.stop import PartialText, StopMatcher, unfinished
from model_host.rendering import Decoder, TurnBytes


class VisibleText:
    """The visible bytes of one run: whole characters, no stop strings, no control tokens."""

    def __init__(
        self,
        tokenizer: Decoder,
        stops: Iterable[str],
        continued: Sequence[int] = (),
        tokens_min: int = 0,
    ) -> None:
        """Start a run that continues after the tokens `continued`. Raises StopInvalid.

        They may end inside a character, which was not shown: the output begins with it.
        Before the output index `tokens_min`, counted from the turn's start, no stop string
        ends the output.
        """
        self._bytes = TurnBytes(tokenizer, continued)
        self._matcher = StopMatcher(stops, unfinished(self._bytes.begun))
        self._characters = PartialText()
        self._tokens_left = tokens_min - len(continued)

    @property
    def stopped_by(self) -> str | None:
        """Return the stop string met, if any."""
        return self._matcher.stopped_by

    def push(self, token_id: int) -> bytes:
        """Add a token; return the bytes that may be shown now.

        Bytes that are not UTF-8 become the replacement character.
        """
        may_stop = self._tokens_left <= 0
        self._tokens_left -= 1
        shown = self._matcher.feed(self._bytes.push(token_id), may_stop=may_stop)
        return self._characters.feed(shown.text).encode()

    @property
    def calls(self) -> tuple[FoundCall, ...]:
        """Return no calls: text that looks like one is text."""
        return ()

    @property
    def hidden_bytes(self) -> int:
        """Return 0: there are no calls."""
        return 0

    def finish(self, *, can_continue: bool) -> bytes:  # noqa: ARG002  # a call may be completed
        """Return the bytes held back, which are plain text after all."""
        # The matcher drops an unfinished character. What is still held here was broken before it.
        return self._characters.finish(self._matcher.finish()).encode()
