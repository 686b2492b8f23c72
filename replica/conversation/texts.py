"""Texts that people read: which names and messages are taken. Pure."""

from collections.abc import Sequence

from replica.conversation.characters import NON_JOINER, is_shown
from replica.log import Part, Text
from replica.refusals import ArgumentInvalid

NAME_CHARACTERS_MAX = 64


def check_name(name: str) -> str:
    """Return a name or a title that can be shown in one line. Raises ArgumentInvalid."""
    is_short = 0 < len(name) <= NAME_CHARACTERS_MAX
    wrong = next((char for char in name if not is_shown(char)), "")
    if not is_short or wrong or any(map(_is_blank, (name[0], name[-1]))):
        why = f": U+{ord(wrong):04X} is none of them" if wrong else ""
        raise ArgumentInvalid(
            f"a name or a title has 1 to {NAME_CHARACTERS_MAX} characters that all terminals show"
            f" alike, in one line, without spaces at its ends{why}"
        )
    return name


def _is_blank(char: str) -> bool:
    return char.isspace() or char == NON_JOINER


def says_nothing(parts: Sequence[Part]) -> bool:
    """Say whether a message has no part but blank texts."""
    return all(isinstance(part, Text) and not part.text.strip() for part in parts)
