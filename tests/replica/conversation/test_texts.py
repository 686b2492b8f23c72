"""Names fit a line, and messages say something."""

import pytest

from replica.conversation import check_name, says_nothing
from replica.log import Text, ToolCall
from replica.refusals import ArgumentInvalid


@pytest.mark.parametrize("name", ["a", "Köln & Umgebung", "x" * 64])
def test_a_name_fits_a_line(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "a\u202eb", "\ud800", "x" * 65])
def test_what_no_line_shows_is_no_name(name: str) -> None:
    with pytest.raises(ArgumentInvalid, match="1 to 64 characters"):
        check_name(name)


def test_blank_texts_say_nothing() -> None:
    assert says_nothing(())
    assert says_nothing((Text(""), Text(" \n")))
    assert not says_nothing((Text(""), Text("a")))
    assert not says_nothing((ToolCall("1", "book", "{}"),))
