"""The room of a model's context: where it is exceeded, tokenising stops (HOST-14). Pure."""

from dataclasses import dataclass
from typing import Protocol

from model_host.refusals import ContextTooLong
from model_host.rendering.template import Encoder
from replica.ids import Digest


class Bound(Protocol):
    """A bound on the tokens of a context, asked before and behind each text."""

    def check(self, tokens: int, *, is_all: bool = False) -> None:
        """Raise an error if a context has at least so many tokens, and that is too many."""


@dataclass(frozen=True, slots=True)
class Room:
    """The tokens that a context of one profile can hold."""

    tokens_max: int

    def check(self, tokens: int, *, is_all: bool = False) -> None:
        """Raise ContextTooLong if a context with so many tokens has no room for another one.

        `is_all` says that it has no more than these.
        """
        if tokens >= self.tokens_max:
            count = f"{tokens}" if is_all else f"at least {tokens}"
            raise ContextTooLong(
                f"the context has {count} tokens, the model holds {self.tokens_max} with the answer"
            )


class RoomyEncoder:
    """Tokenises the contents of one context, and refuses texts for which it has no room.

    A text of some megabytes takes seconds, and its bytes tell soon that it is too long.
    """

    def __init__(self, encoder: Encoder, room: Bound, tokens: int) -> None:
        """Tokenise behind `tokens` tokens of the context."""
        self._encoder = encoder
        self._room = room
        self._tokens = tokens
        self.digest: Digest = encoder.digest
        self.token_count = encoder.token_count
        self.token_bytes_max = encoder.token_bytes_max

    def encode(self, text: str) -> list[int]:
        """Tokenise content. Raises ContextTooLong, and what the encoder raises."""
        least = -(-len(text.encode()) // self.token_bytes_max)
        self._room.check(self._tokens + least)
        return self._encoder.encode(text)

    def encode_template(self, text: str, *, begins: bool = False) -> list[int]:
        """Tokenise a template literal."""
        return self._encoder.encode_template(text, begins=begins)

    def adds_space(self, literal: str, *, begins: bool = False) -> bool:
        """Say whether a text behind this literal begins with a space that nobody wrote."""
        return self._encoder.adds_space(literal, begins=begins)

    def is_control(self, token_id: int) -> bool:
        """Say whether only template literals and models may produce a token."""
        return self._encoder.is_control(token_id)

    def note(self, tokens: int) -> None:
        """Count tokens that were added to the context. Raises ContextTooLong."""
        self._tokens += tokens
        self._room.check(self._tokens)
