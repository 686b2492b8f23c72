"""Names fit a line, and messages say something."""

import pytest

from replica.conversation import check_name, says_nothing
from replica.log import Text, ToolCall
from replica.refusals import ArgumentInvalid


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "Köln & Umgebung",
        "x" * 64,
        "東京\u3000旅行",  # the wide space
        "Umsatz\u00a02026",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # a word of Persian
        "\ue0b0 main",  # private use
        "\U0001fae9 tired",  # of Unicode 16, which this Python does not know
    ],
)
def test_a_name_fits_a_line(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "\ud800", "x" * 65])
def test_what_no_line_shows_is_no_name(name: str) -> None:
    with pytest.raises(ArgumentInvalid, match="1 to 64 characters"):
        check_name(name)


@pytest.mark.parametrize(
    "char",
    [*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c", *"\x1b\x9b\x7f\t",
     *"\u2028\u2029\u200b\u2060\ufeff\u00ad", "\U000e0041"],
)  # fmt: skip
def test_what_turns_moves_or_hides_text_is_in_no_name(char: str) -> None:
    for name in (f"a{char}b", f"{char}b", f"a{char}", char):
        with pytest.raises(ArgumentInvalid):
            check_name(name)


@pytest.mark.parametrize("name", ["\u200c", "\u200ca", "a\u200c", "\u3000a", "a\u00a0", "\u3000"])
def test_a_name_begins_and_ends_with_what_is_seen(name: str) -> None:
    with pytest.raises(ArgumentInvalid):
        check_name(name)


def test_blank_texts_say_nothing() -> None:
    assert says_nothing(())
    assert says_nothing((Text(""), Text(" \n")))
    assert not says_nothing((Text(""), Text("a")))
    assert not says_nothing((ToolCall("1", "book", "{}"),))
