"""The text of a turn: a space with which it begins is hidden, at any split."""

from itertools import product

import pytest

from model_host.generation import VisibleText
from model_host.rendering import TurnBytes

WORDS = (b"", b" ", b"a", b" a", b"\xc3", b"\xa9", b"##")


class Words:
    def __init__(self, *, hides_space: bool) -> None:
        self.hides_space = hides_space

    def token_bytes(self, token_id: int) -> bytes:
        return WORDS[token_id]


@pytest.mark.parametrize("hides_space", [True, False])
def test_the_bytes_of_a_turn_lack_one_space_at_its_beginning(hides_space: bool) -> None:
    words = Words(hides_space=hides_space)
    for ids in product(range(len(WORDS)), repeat=3):
        whole = b"".join(WORDS[i] for i in ids)
        expected = whole.removeprefix(b" ") if hides_space else whole
        for split in range(len(ids) + 1):
            turn = TurnBytes(words, ids[:split])
            assert turn.begun + b"".join(map(turn.push, ids[split:])) == expected


def test_answers_that_continue_one_another_show_the_text_of_the_whole_turn() -> None:
    words = Words(hides_space=True)
    for ids in product(range(len(WORDS) - 1), repeat=4):
        whole = shown_by(words, ids)
        for split in range(len(ids) + 1):
            parts = shown_by(words, ids[:split]) + shown_by(words, ids[split:], ids[:split])
            assert parts == whole


def test_a_stop_string_does_not_read_the_hidden_space() -> None:
    visible = VisibleText(Words(hides_space=True), (" a",))
    assert [visible.push(3), visible.push(3)] == [b"a", b""]
    assert visible.stopped_by == " a"


def shown_by(words: Words, ids: tuple[int, ...], before: tuple[int, ...] = ()) -> bytes:
    visible = VisibleText(words, ("##",), before)
    return b"".join(map(visible.push, ids)) + visible.finish(can_continue=True)
