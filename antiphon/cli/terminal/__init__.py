"""The terminal: keys, the line that is edited, the screen."""

from antiphon.cli.terminal.canvas import Canvas, Panel
from antiphon.cli.terminal.keyboard import Keyboard, raw_keyboard
from antiphon.cli.terminal.line_editor import (
    TEXT_CHARACTERS_MAX,
    Cut,
    Ended,
    Interrupted,
    LineEditor,
    Submitted,
    Suspended,
    Typed,
    is_open,
    without_quotes,
)
from antiphon.cli.terminal.screen import (
    AnswerScreen,
    WrappedText,
    not_stored_words,
    not_taken_words,
)

__all__ = [
    "TEXT_CHARACTERS_MAX",
    "AnswerScreen",
    "Canvas",
    "Cut",
    "Ended",
    "Interrupted",
    "Keyboard",
    "LineEditor",
    "Panel",
    "Submitted",
    "Suspended",
    "Typed",
    "WrappedText",
    "is_open",
    "not_stored_words",
    "not_taken_words",
    "raw_keyboard",
    "without_quotes",
]
