"""The line being typed: keys, pastes, quotes, history and display."""

import pytest

from antiphon.cli.line_editor import Ended, Interrupted, LineEditor, Submitted


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
        ("a\x00b", "ab"),
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


def test_triple_quotes_open_a_text_that_triple_quotes_end() -> None:
    editor = LineEditor()
    assert typed(editor, '"""\rone\rtwo\r') == []
    assert typed(editor, '"""\r') == [Submitted("one\ntwo")]
    assert typed(editor, '"""one"""\r') == [Submitted("one")]


def test_the_arrows_show_earlier_texts_and_keep_the_one_being_typed() -> None:
    editor = LineEditor()
    typed(editor, "one\rtwo\rthr")
    for key, text in (("A", "two"), ("A", "one"), ("A", "one"), ("B", "two"), ("B", "thr")):
        typed(editor, f"\x1b[{key}")
        assert editor.text == text


def test_ctrl_c_leaves_the_line_and_ctrl_d_ends_an_empty_one() -> None:
    editor = LineEditor()
    assert typed(editor, "ab\x03") == [Interrupted()]
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
