"""A message with its encoded bytes (spec/04-link §4).

A link encodes each message once: the bytes counted against the credit are
those the driver writes (DECISIONS D28).
"""

from dataclasses import dataclass

from replica.link.codec import Direction, encode_frame
from replica.link.messages import Message


@dataclass(frozen=True, slots=True)
class Frame:
    """A message with its bytes."""

    message: Message
    data: bytes

    @classmethod
    def of(cls, message: Message, direction: Direction) -> "Frame":
        """Encode a message for the stream in that direction."""
        return cls(message, encode_frame(message, direction))
