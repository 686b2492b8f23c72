"""Characters of a text that is typed, and of one that is shown in a line.

Pure. Python's `str.isprintable` is no rule for either: it refuses the wide space of
Japanese, private use, and whatever Unicode has added since this Python was made.
"""

import unicodedata

_CONTROLS = ("Cc", "Cs")
_MOVING = (*_CONTROLS, "Cf", "Zl", "Zp")
NON_JOINER = "\u200c"
"""Has no width anywhere, and words of Persian are wrong without it."""


def is_typed(char: str) -> bool:
    """Say whether a character of the keyboard, or of a paste, is part of the text."""
    return unicodedata.category(char) not in _CONTROLS


def is_shown(char: str) -> bool:
    """Say whether a line shows a character where it stands.

    Controls move the cursor. Of format characters, some turn the text around them, and
    terminals disagree about the width of what others join.
    """
    return unicodedata.category(char) not in _MOVING or char == NON_JOINER
