"""One message as it goes on the wire (spec/04-link §2).

A link encodes what it sends, once: the bytes that count against the credit are
those the driver writes.
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
