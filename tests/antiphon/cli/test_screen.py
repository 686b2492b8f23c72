"""Output on a terminal: wrapping at words, the status line below the text."""

import random

import pytest
from rich.cells import cell_len

from antiphon.cli.terminal.screen import WrappedText
from antiphon.cli.views.rows import cut, wrapped


class FakeTerminal:
    """A minimal terminal for the wrapped text: lines, a cursor, three sequences."""

    def __init__(self) -> None:
        self.lines = [""]

    def write(self, text: str) -> None:
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                end = at + 1
                while not text[end].isalpha():
                    end += 1
                count = text[at + 2 : end]
                if text[end] == "D":
                    self.lines[-1] = self.lines[-1][: -int(count)]
                at = end + 1
                continue
            if text[at] == "\n":
                self.lines.append("")
            else:
                self.lines[-1] += text[at]
            at += 1


def naive_wrap(text: str, width: int) -> list[str]:
    """Wrap a whole text at once, greedily."""
    lines = [""]
    for number, word in enumerate(text.split(" ")):
        if number == 0:
            lines[-1] = word
        elif len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


@pytest.mark.parametrize("seed", range(50))
def test_a_stream_wraps_as_the_whole_text_would(seed: int) -> None:
    chance = random.Random(seed)
    words = ["x" * chance.randint(1, 9) for _ in range(60)]
    text, width = " ".join(words), chance.randint(12, 40)
    terminal, wrapped = FakeTerminal(), WrappedText(width)
    at = 0
    while at < len(text):
        step = chance.randint(1, 7)
        terminal.write(wrapped.feed(text[at : at + step]))
        at += step
    assert [line.rstrip() for line in terminal.lines] == naive_wrap(text, width)
    assert wrapped.column == len(terminal.lines[-1])


def test_a_word_longer_than_the_line_is_cut() -> None:
    terminal, wrapped = FakeTerminal(), WrappedText(10)
    terminal.write(wrapped.feed("y" * 25))
    assert terminal.lines == ["y" * 10, "y" * 10, "y" * 5]


def test_control_characters_of_a_model_never_reach_the_terminal() -> None:
    assert WrappedText(40).feed("a\x1b[31mb\rc\x07") == "a[31mbc"


def test_every_other_character_of_a_model_does() -> None:
    text = "東京\u3000駅 10\u00a0km \U0001fae8 می\u200cرم"
    wrapped = WrappedText(60)
    assert wrapped.feed(text) == text
    assert wrapped.column == cell_len(text)


def test_wide_characters_count_twice() -> None:
    wrapped = WrappedText(10)
    wrapped.feed("語語語")
    assert wrapped.column == 6


@pytest.mark.parametrize("seed", range(20))
def test_broken_lines_fit_and_lose_no_word(seed: int) -> None:
    chance = random.Random(seed)
    alphabet = ["word", "語語", "é", "👩", "·", "x" * 50]
    text = " ".join(chance.choice(alphabet) for _ in range(80))
    width = chance.randint(21, 60)
    lines = wrapped(text, width)
    assert max(map(cell_len, lines)) <= width
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_lines_are_broken_at_joints_where_there_are_some() -> None:
    line = "prompt 27 = 27 prefilled · output 8 · first token 0.10 s · 25.4 tok/s"
    assert wrapped(line, 40, " · ") == [
        "prompt 27 = 27 prefilled · output 8",
        "first token 0.10 s · 25.4 tok/s",
    ]


def test_a_long_line_without_spaces_is_broken_in_no_time() -> None:
    assert len(wrapped("x" * 500_000, 60)) == 8334


def test_a_line_cut_short_says_so() -> None:
    assert cut("short", 8) == "short"
    assert cut("a longer line", 8) == "a longe…"
    assert cell_len(cut("語" * 9, 8)) <= 8


def test_characters_without_a_cell_are_neither_lost_nor_in_the_way() -> None:
    accents = "\u0301" * 100
    assert "".join(wrapped(accents, 40)) == accents
    assert "".join(wrapped("a" * 50 + accents + "b" * 50, 40)) == "a" * 50 + accents + "b" * 50
    assert cut(accents, 20) == accents
    assert cut(accents + "a" * 30, 20) == accents[:20] + "…"
