"""Texts that people read: which names and messages are taken. Pure."""

from collections.abc import Sequence

from replica.log import Part, Text
from replica.refusals import ArgumentInvalid

NAME_CHARACTERS_MAX = 64


def check_name(name: str) -> str:
    """Return a name or a title that can be shown in one line. Raises ArgumentInvalid."""
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable() or name != name.strip():
        raise ArgumentInvalid(
            f"a name has 1 to {NAME_CHARACTERS_MAX} characters, in one line, without spaces at its"
            " ends"
        )
    return name


def says_nothing(parts: Sequence[Part]) -> bool:
    """Say whether a message has no part but blank texts."""
    return all(isinstance(part, Text) and not part.text.strip() for part in parts)
