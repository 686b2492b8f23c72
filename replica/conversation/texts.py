"""Texts that people read: which names and messages are taken. Pure."""

from collections.abc import Sequence

from replica.conversation.characters import NON_JOINER, is_shown
from replica.log import Part, Text
from replica.refusals import ArgumentInvalid

NAME_CHARACTERS_MAX = 64


def check_name(name: str) -> str:
    """Return a name or a title that can be shown in one line. Raises ArgumentInvalid."""
    is_short = 0 < len(name) <= NAME_CHARACTERS_MAX
    if not is_short or not all(map(is_shown, name)) or any(map(_is_blank, (name[0], name[-1]))):
        raise ArgumentInvalid(
            f"a name or a title has 1 to {NAME_CHARACTERS_MAX} characters, in one line, without"
            " spaces at its ends and without joined emoji, whose width terminals disagree about"
        )
    return name


def _is_blank(char: str) -> bool:
    return char.isspace() or char == NON_JOINER


def says_nothing(parts: Sequence[Part]) -> bool:
    """Say whether a message has no part but blank texts."""
    return all(isinstance(part, Text) and not part.text.strip() for part in parts)
