"""The text of an answer's turn, as bytes of its tokens (spec/07-host §4). Pure.

Drafts, parts, stop strings, calls and grammars all read these bytes.
"""

from collections.abc import Iterable
from typing import Protocol


class Decoder(Protocol):
    """The part of a tokenizer that converts tokens to bytes."""

    @property
    def hides_space(self) -> bool:
        """Return whether a space with which a turn begins is no part of its text."""

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one token; none for a control token."""


class TurnBytes:
    """The bytes that each token of one turn adds to its text.

    A model whose tokenizer adds a space before a text was trained on answers that begin with
    it, so it is no part of what the model says (HOST-129).
    """

    def __init__(self, tokenizer: Decoder, token_ids: Iterable[int] = ()) -> None:
        """Start with tokens, whose bytes are `begun`."""
        self._tokenizer = tokenizer
        self._may_hide = tokenizer.hides_space
        self.begun = b"".join(map(self.push, token_ids))

    def push(self, token_id: int) -> bytes:
        """Return the bytes that the next token adds."""
        data = self._tokenizer.token_bytes(token_id)
        if not self._may_hide or not data:
            return data
        self._may_hide = False
        return data.removeprefix(b" ")
