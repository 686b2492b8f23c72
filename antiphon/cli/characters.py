"""Characters of a text that is typed, and of a text that a terminal shows.

Pure. Python's `str.isprintable` is no rule for either: it refuses the wide space of
Japanese, private use, and whatever Unicode has added since this Python was made.
"""

import unicodedata

_CONTROLS = ("Cc", "Cs")
_MOVING = (*_CONTROLS, "Cf", "Zl", "Zp")
_NON_JOINER = "\u200c"
"""Has no width anywhere, and words of Persian are wrong without it."""


def is_typed(char: str) -> bool:
    """Say whether a character of the keyboard, or of a paste, is part of the text."""
    return unicodedata.category(char) not in _CONTROLS


def is_shown(char: str) -> bool:
    """Say whether a character is written to a terminal whose column has to be known.

    Controls move the cursor. Of format characters, terminals disagree about the width of
    what they join.
    """
    return unicodedata.category(char) not in _MOVING or char == _NON_JOINER
