"""The parts of a rendered context: what an entry adds, and the turns these are in. Pure."""

from collections.abc import Set
from dataclasses import dataclass, replace

from model_host.rendering.template import Opening
from replica.ids import EntryId
from replica.log import Message


@dataclass(frozen=True, slots=True)
class Fragment:
    """The part of a context that one entry adds: a turn it opens, and content.

    `ids` is None for an entry without content, as a request.
    """

    entry: EntryId
    opens: str | None = None
    ids: tuple[int, ...] | None = None
    is_recorded: bool = False
    is_asked: bool = False
    """Whether the turn is an answer's that a request opens: it begins with a header."""
    is_spaced: bool = False
    """Whether the content begins with the space of the literal before it."""
    message: Message | None = None
    """The message with which a turn opens, if a space before it would be a part of it."""
    foreign: Set[int] = frozenset()
    """The results in the message that render as nothing."""

    def literal(self, opening: Opening) -> list[int]:
        """Return the ids of the literal that opens the turn."""
        return opening.before_space or [] if self.is_spaced else opening.ids


@dataclass(frozen=True, slots=True)
class Turn:
    """The last turn of a context: its role, and the content so far."""

    role: str
    tokens: int = 0
    last_id: int | None = None
    """The last id, if the content ends with recorded ids."""

    def with_content(self, ids: tuple[int, ...], *, is_recorded: bool) -> "Turn":
        """Return the turn with more content."""
        last_id = ids[-1] if ids and is_recorded else self.last_id
        return replace(self, tokens=self.tokens + len(ids), last_id=last_id)
