"""What is typed is kept, and what has no certain place in a line is not shown."""

from replica.conversation import is_shown, is_typed


def test_controls_are_neither_typed_nor_shown() -> None:
    for char in "\x1b\x9b\x7f\ud800":
        assert not is_typed(char)
        assert not is_shown(char)


def test_marks_of_direction_and_joiners_are_typed_and_not_shown() -> None:
    for char in "\u202e\u2066\u200f\u200d":
        assert is_typed(char)
        assert not is_shown(char)


def test_what_python_does_not_call_printable_is_shown() -> None:
    for char in "\u3000\u00a0\ue0b0\U0001fae9\u200c":
        assert not char.isprintable()
        assert is_shown(char)
