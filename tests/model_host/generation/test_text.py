"""Visible text: whole characters, no stop string, and all bytes held back in the end."""

from collections.abc import Iterable, Sequence

import pytest

from model_host.engine.tokenizer import Tokenizer
from model_host.generation.text import VisibleText
from model_host.refusals import StopInvalid


class Bytes:
    """A tokenizer whose tokens are bytes."""

    hides_space = False

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])

    def decode_bytes(self, token_ids: Sequence[int]) -> bytes:
        return bytes(token_ids)


def pushed(visible: VisibleText, token_ids: Iterable[int]) -> list[str]:
    return [visible.push(token_id).decode() for token_id in token_ids]


def test_a_character_is_shown_when_it_is_whole() -> None:
    visible = VisibleText(Bytes(), ())
    assert pushed(visible, "aé東".encode()) == ["a", "", "é", "", "", "東"]
    assert visible.finish(can_continue=False) == b""


def test_bytes_that_are_no_character_are_shown_as_the_replacement_character() -> None:
    visible = VisibleText(Bytes(), ())
    assert "".join(pushed(visible, b"a\xffb")) == "a\ufffdb"


def test_broken_bytes_before_an_unfinished_character_are_shown_at_the_end() -> None:
    broken = ((b"\xf3\xf3\xf3", 2), (b"\xf3\xb1\xf3\xb1", 1), (b"\xf3", 0), (b"\xed\xbf", 2))
    for data, shown in broken:
        visible = VisibleText(Bytes(), ())
        text = "".join(pushed(visible, data)) + visible.finish(can_continue=True).decode()
        assert text == "\ufffd" * shown


def test_an_answer_does_not_begin_with_bytes_that_the_one_before_showed_as_broken() -> None:
    visible = VisibleText(Bytes(), (), b"a\xed\xa0")
    text = "".join(pushed(visible, b"\x80b")) + visible.finish(can_continue=False).decode()
    assert text == "\ufffdb"


def test_bytes_broken_by_a_stop_string_are_shown_at_the_end() -> None:
    for stop, data, begun in (("##", b"a\xf3##", "a"), ("a", b"\xe2a", "")):
        visible = VisibleText(Bytes(), [stop])
        text = "".join(pushed(visible, data)) + visible.finish(can_continue=False).decode()
        assert text == f"{begun}\ufffd"
        assert visible.stopped_by == stop


def test_a_character_left_unfinished_is_not_shown() -> None:
    visible = VisibleText(Bytes(), ())
    assert pushed(visible, "aé".encode()[:-1]) == ["a", ""]
    assert visible.finish(can_continue=False) == b""


def test_bytes_that_may_begin_a_stop_string_are_held_back_until_it_is_known() -> None:
    visible = VisibleText(Bytes(), ["##"])
    assert pushed(visible, b"a#b#") == ["a", "", "#b", ""]
    assert visible.stopped_by is None
    assert visible.finish(can_continue=False) == b"#"


def test_a_stop_string_is_not_shown() -> None:
    visible = VisibleText(Bytes(), ["##"])
    assert "".join(pushed(visible, b"yes##")) == "yes"
    assert visible.stopped_by == "##"


def test_a_stop_string_does_not_end_a_text_before_its_least_length() -> None:
    visible = VisibleText(Bytes(), ["##"], tokens_min=3)
    assert "".join(pushed(visible, b"##a##")) == "##a"
    assert visible.stopped_by == "##"


def test_the_least_length_counts_from_the_start_of_the_turn() -> None:
    visible = VisibleText(Bytes(), ["#"], b"ab", tokens_min=3)
    assert "".join(pushed(visible, b"##")) == "#"
    assert visible.stopped_by == "#"


def test_a_stop_string_out_of_range_is_refused() -> None:
    with pytest.raises(StopInvalid):
        VisibleText(Bytes(), [""])


def test_a_continuation_begins_with_the_character_the_answer_before_was_cut_in(
    tokenizer: Tokenizer,
) -> None:
    ids = tokenizer.encode("a🦊b")
    assert len(ids) == 5  # the fox is three tokens
    for cut in range(len(ids) + 1):
        first = VisibleText(tokenizer, ())
        shown = b"".join(map(first.push, ids[:cut])) + first.finish(can_continue=True)
        second = VisibleText(tokenizer, (), ids[:cut])
        shown += b"".join(map(second.push, ids[cut:])) + second.finish(can_continue=False)
        assert shown.decode() == "a🦊b"


def test_a_stop_string_may_begin_with_the_character_an_answer_was_cut_in(
    tokenizer: Tokenizer,
) -> None:
    ids = tokenizer.encode("a🦊b")
    second = VisibleText(tokenizer, ("🦊",), ids[:2])
    assert b"".join(map(second.push, ids[2:4])) == b""
    assert second.stopped_by == "🦊"
