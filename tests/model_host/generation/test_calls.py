"""Calls in an answer: hidden while they are generated, then parts of their own."""

import pytest

from model_host.generation.calls import CALLS_MAX, CallingText, FoundCall
from model_host.generation.text import VisibleText
from model_host.rendering.tool_formats import HERMES, LLAMA3, ToolFormat
from tests.model_host.generation.test_text import Bytes

BODY = '{"name": "f", "arguments": {"x": 1}}'
CALL = f"<tool_call>\n{BODY}\n</tool_call>"
MARKS = '{"x": "<tool_call>\\n</tool_call> \\" </tool_call>"}'
QUOTING = f'<tool_call>\n{{"name": "f", "arguments": {MARKS}}}\n</tool_call>'
BARE = '{"name": "f", "parameters": {"x": 1}}'


def calling(
    known: ToolFormat = HERMES, continued: str = "", stops: tuple[str, ...] = ()
) -> CallingText:
    return CallingText(VisibleText(Bytes(), stops), known, continued)


def read(text: CallingText, words: str, *, can_continue: bool = False) -> tuple[str, str]:
    """Return what is shown while the words come, and at their end."""
    shown = b"".join(text.push(byte) for byte in words.encode())
    return shown.decode(), text.finish(can_continue=can_continue).decode()


def found(offset: int) -> FoundCall:
    return FoundCall(offset, "f", '{"x": 1}')


def test_text_without_a_call_is_shown_as_it_comes() -> None:
    text = calling()
    assert [text.push(b) for b in b"a <b"] == [b"a", b" ", b"", b"<b"]
    assert read(text, " <tool_ca") == (" ", "<tool_ca")
    assert text.calls == ()


def test_a_call_is_no_visible_text() -> None:
    text = calling()
    assert read(text, f"Wait.\n{CALL}") == ("Wait.\n", "")
    assert text.calls == (found(6),)
    assert text.hidden_bytes == len(CALL)


def test_several_calls_keep_their_order_and_the_text_between_them() -> None:
    text = calling()
    assert read(text, f"{CALL}\n{CALL} and {CALL}\n") == ("", " and ")
    assert text.calls == (found(0), found(0), found(5))


def test_marks_in_the_strings_of_a_call_are_part_of_it() -> None:
    text = calling()
    assert read(text, f"{QUOTING} and {CALL}") == ("", " and ")
    assert text.calls == (FoundCall(0, "f", MARKS), found(5))


@pytest.mark.parametrize("quote", ['"', '"\\'])
def test_a_string_without_end_takes_no_call_with_it(quote: str) -> None:
    text, broken = calling(), f"<tool_call>{{{quote}}}</tool_call>"
    assert read(text, broken + CALL) == ("", broken)
    assert text.calls == (found(len(broken)),)


@pytest.mark.parametrize("broken", ["<tool_call>{}</tool_call>", "<tool_call>and so on"])
def test_what_is_no_call_becomes_text_in_the_end(broken: str) -> None:
    text = calling()
    assert read(text, f"a{broken}") == ("a", broken)
    assert text.calls == ()


def test_no_more_calls_are_read_than_an_entry_holds() -> None:
    text = calling()
    _, rest = read(text, CALL * (CALLS_MAX + 2))
    assert len(text.calls) == CALLS_MAX
    assert rest == CALL * 2


@pytest.mark.parametrize("cut", range(len(f"a{CALL}b")))
def test_a_call_that_two_answers_wrote_belongs_to_the_second(cut: int) -> None:
    words = f"a{CALL}b"
    first, second = calling(), calling(continued=words[:cut])
    shown = "".join(read(first, words[:cut], can_continue=True))
    shown += "".join(read(second, words[cut:]))
    assert [*first.calls, *second.calls] in ([found(1)], [found(0)])
    # The first answer can't know that the mark it began is one.
    begun = words[1:cut] if cut <= len("a<tool_call") else ""
    assert shown == f"a{begun}b"


@pytest.mark.parametrize("cut", range(len(QUOTING) + 1))
def test_a_call_with_marks_in_its_strings_may_be_cut_anywhere(cut: int) -> None:
    first, second = calling(), calling(continued=QUOTING[:cut])
    read(first, QUOTING[:cut], can_continue=True)
    assert "".join(read(second, QUOTING[cut:] + "b")).endswith("b")
    assert [call.arguments_json for call in (*first.calls, *second.calls)] == [MARKS]


def test_a_stop_string_ends_a_call_too() -> None:
    text = calling(stops=("x",))
    words = f"a{CALL}"
    assert read(text, words[: words.index("x") + 1])[0] == "a"
    assert text.stopped_by == "x"
    assert text.calls == ()


@pytest.mark.parametrize("words", [BARE, f" \n{BARE}\n"])
def test_without_marks_an_answer_that_is_one_call_is_a_call(words: str) -> None:
    text = calling(LLAMA3)
    assert read(text, words) == ("", "")
    assert text.calls == (found(0),)


def test_white_space_before_a_call_without_marks_counts_as_hidden() -> None:
    text = calling(LLAMA3)
    assert [text.push(byte) for byte in b" \n "] == [b"", b"", b""]
    assert text.hidden_bytes == 3


def test_without_marks_any_other_answer_is_text() -> None:
    for words in ("hello {", f"so: {BARE}"):
        text = calling(LLAMA3)
        assert read(text, words) == (words, "")
    assert read(calling(LLAMA3), '{"a": 1}') == ("", '{"a": 1}')
    assert read(calling(LLAMA3), " ") == ("", " ")


def test_without_marks_a_call_that_two_answers_wrote_belongs_to_the_second() -> None:
    first, second = calling(LLAMA3), calling(LLAMA3, continued=BARE[:9])
    assert read(first, BARE[:9], can_continue=True) == ("", "")
    assert read(second, BARE[9:]) == ("", "")
    assert second.calls == (found(0),)
    after = calling(LLAMA3, continued=BARE)
    assert read(after, "thanks") == ("thanks", "")
