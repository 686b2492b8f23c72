"""The line being typed: keys, pastes, quotes, history and display."""

import random

import pytest

from antiphon.cli.terminal.line_editor import (
    TEXT_CHARACTERS_MAX,
    Cut,
    Ended,
    Interrupted,
    LineEditor,
    Submitted,
    Suspended,
    without_quotes,
)


def typed(editor: LineEditor, keys: str) -> list[object]:
    """Feed keys byte by byte, as a slow terminal does."""
    return [key for byte in keys.encode() for key in editor.feed(bytes([byte]))]


def test_enter_submits_and_empties_the_line() -> None:
    editor = LineEditor()
    assert typed(editor, "grüße 語\r") == [Submitted("grüße 語")]
    assert (editor.text, editor.cursor) == ("", 0)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("ab\x7fc", "ac"),
        ("ab\x1b[D\x1b[3~c", "ac"),
        ("bc\x1b[Ha", "abc"),
        ("bc\x01a\x05d", "abcd"),
        ("one two \x17x", "one x"),
        ("one\x15two", "two"),
        ("one\x01\x0btwo", "two"),
        ("a\x1b\rb", "a\nb"),
        ("a\x1b[99zb", "ab"),
        ("ab\x1b\x1b[Dc", "acb"),
        ("ab\x1b[\x7fc", "ac"),
        ("a\x1bxb", "ab"),
        ("a\x00b", "ab"),
        ("東京\u3000駅", "東京\u3000駅"),
        ("10\u00a0km", "10\u00a0km"),
        ("می\u200cرم", "می\u200cرم"),
        ("👩\u200d🔬", "👩\u200d🔬"),
        ("\U0001fae8", "\U0001fae8"),
    ],
)
def test_keys_edit_the_line(keys: str, text: str) -> None:
    editor = LineEditor()
    assert typed(editor, keys) == []
    assert editor.text == text


def test_a_paste_of_several_lines_is_one_text() -> None:
    editor = LineEditor()
    assert typed(editor, "see: \x1b[200~one\r\ntwo\x03\x1b[A\rthree\x1b[201~") == []
    assert editor.text == "see: one\ntwo[A\nthree"
    assert typed(editor, "\r") == [Submitted("see: one\ntwo[A\nthree")]


def test_escape_before_a_paste_leaves_it_one_text() -> None:
    editor = LineEditor()
    assert typed(editor, "\x1b\x1b[200~one\rtwo\x1b[201~\r") == [Submitted("one\ntwo")]


def test_escape_before_ctrl_c_leaves_it_a_key() -> None:
    editor = LineEditor()
    assert typed(editor, "\x1b\x03\x1b[\x04") == [Interrupted(), Ended()]


def test_a_paste_without_marks_is_inserted_line_by_line() -> None:
    inserted = []

    class Noting(LineEditor):
        def _insert(self, text: str) -> None:
            inserted.append(len(text))
            super()._insert(text)

    editor = Noting()
    assert editor.feed(b"0123456789\t" * 1000 + b"\r" + b"last") == [
        Submitted("0123456789\t" * 1000)
    ]
    assert inserted == [11_000, 4]


def test_triple_quotes_open_a_text_that_triple_quotes_end() -> None:
    editor = LineEditor()
    assert typed(editor, '"""\rone\rtwo\r') == []
    assert typed(editor, '"""\r') == [Submitted('"""\none\ntwo\n"""')]
    assert typed(editor, '"""one"""\r') == [Submitted('"""one"""')]


def test_the_quotes_are_no_part_of_the_text() -> None:
    assert without_quotes('"""\none\ntwo\n"""') == "one\ntwo"
    assert without_quotes('"""one"""') == "one"
    assert without_quotes('""') == '""'


def test_the_arrows_show_earlier_texts_and_keep_the_one_being_typed() -> None:
    editor = LineEditor()
    typed(editor, "one\rtwo\rthr")
    for key, text in (("A", "two"), ("A", "one"), ("A", "one"), ("B", "two"), ("B", "thr")):
        typed(editor, f"\x1b[{key}")
        assert editor.text == text


@pytest.mark.parametrize(
    ("keys", "submitted", "left"),
    [
        ("/quit\r", ["/quit"], "refused"),
        ("/quit\r\r", ["/quit", "refused"], ""),
        ("\r/quit\r", ["refused", "/quit"], ""),
        ("/a\r/b\r", ["/a", "/b"], "refused"),
        (" again\r", ["refused again"], ""),
        ("\x7f/\r", ["refuse/"], ""),
        ("\x1b[D/\r", ["refuse/d"], ""),
        ("\x15/quit\r", ["/quit"], ""),
        ("/q\x7f\x7f more\r", ["refused more"], ""),
        ("/q\x15\x15x\r", ["x"], ""),
        ("\x1b[200~/switch abc\x1b[201~\r", ["/switch abc"], "refused"),
        ("\x1b[200~ and on\x1b[201~\r", ["refused and on"], ""),
        ("\x1b[F\x04/quit\r", ["/quit"], "refused"),
    ],
)
def test_a_command_can_be_typed_before_a_text_that_was_put_back(
    keys: str, submitted: list[str], left: str
) -> None:
    """It was joined to the text, and sent with it."""
    editor = LineEditor()
    editor.put_back("refused")
    assert typed(editor, keys) == [Submitted(text) for text in submitted]
    assert (editor.text, editor.cursor) == (left, len(left))


def test_a_text_that_waits_for_a_command_is_not_sent_yet() -> None:
    editor = LineEditor()
    editor.put_back("refused")
    typed(editor, "/fork")
    assert editor.unsent == ["refused", "/fork"]
    typed(editor, "\r")
    assert editor.unsent == ["refused"]


def test_ctrl_c_leaves_the_line_and_ctrl_d_ends_an_empty_one() -> None:
    editor = LineEditor()
    assert typed(editor, "ab\x03") == [Interrupted()]
    assert typed(editor, "\x1a") == [Suspended()]
    assert editor.text == "ab"
    assert typed(editor, "\x15\x04") == [Ended()]


def test_rows_fit_the_width_and_hold_the_cursor() -> None:
    editor = LineEditor()
    typed(editor, "abcdefgh\x1b[D")
    assert editor.rows("> ", 6, 10) == (["> abc", "  def", "  gh"], 2, 3)
    assert editor.rows("> ", 6, 1) == (["  gh"], 0, 3)
    typed(editor, "\x01")
    assert editor.rows("> ", 6, 1) == (["> abc"], 0, 2)
    editor.put("語語語")
    assert editor.rows("> ", 6, 10) == (["> 語", "  語", "  語"], 2, 4)


def test_characters_whose_width_terminals_disagree_about_have_no_cell() -> None:
    editor = LineEditor()
    editor.put("東\u3000👩\u200d🔬")
    assert editor.rows("> ", 20, 10) == (["> 東\u3000👩🔬"], 0, 10)


@pytest.mark.parametrize("seed", range(30))
def test_the_rows_near_the_cursor_are_those_of_the_whole_text(seed: int) -> None:
    chance = random.Random(seed)
    editor = LineEditor()
    editor.put("".join(chance.choice("ab語\n") for _ in range(60)))
    for cursor in range(len(editor.text) + 1):
        editor.cursor = cursor
        rows, row, column = editor.rows("> ", 7, 1000)
        shown = editor.rows("> ", 7, 3)
        first = max(0, row - 2)
        assert shown == (rows[first : first + 3], row - first, column)


def test_what_is_laid_out_of_a_long_paste_is_near_the_cursor() -> None:
    editor = LineEditor()
    editor.put("one line\n" * 2000)
    begin, end = editor.near_cursor(80, 10)
    assert (begin, end) == (9 * 1991, 9 * 2000)
    editor.cursor = 0
    assert editor.near_cursor(80, 10) == (0, 9 * 10 - 1)


@pytest.mark.parametrize("cursor", [0, 1000, 70_000, 199_990, 200_000])
def test_what_is_laid_out_of_a_long_line_is_near_the_cursor(cursor: int) -> None:
    editor = LineEditor()
    editor.put("0123456789" * 20_000)
    editor.cursor = cursor
    begin, end = editor.near_cursor(80, 10)
    assert end - begin <= 3 * 1024
    rows, row, column = editor.rows("> ", 80, 10)
    assert len(rows) == 10
    assert rows[row][:column].endswith("0123456789"[cursor % 10 - 1]) or cursor == 0


def test_typing_in_a_long_line_leaves_its_other_rows_where_they_are() -> None:
    editor = LineEditor()
    editor.put("0123456789" * 20_000)
    before, row, _ = editor.rows("> ", 80, 10)
    typed(editor, "x")
    after, now, _ = editor.rows("> ", 80, 10)
    assert (after[:now], now) == (before[:row], row)


def test_what_does_not_fit_a_text_is_not_taken_and_this_is_said() -> None:
    editor = LineEditor()
    full = "a" * TEXT_CHARACTERS_MAX
    assert editor.feed(f"\x1b[200~{full}".encode()) == []
    assert editor.feed(b"b" * 1000) == []
    assert len(editor._rest) <= TEXT_CHARACTERS_MAX + 6
    assert editor.feed(b"c\x1b[2") == []
    assert typed(editor, "01~") == [Cut()]
    assert editor.text == full
    assert typed(editor, "\x7f") == []
    assert typed(editor, "de") == [Cut()]
    assert editor.text == full[:-1] + "d"
