"""The transcript above a panel, on a terminal whose size changes."""

import random

import pytest

from antiphon.cli.terminal.canvas import Canvas, Panel
from tests.antiphon.cli.virtual_screen import VirtualScreen


class Screen(VirtualScreen):
    """A screen whose terminal begins a line at each line break, as a terminal does."""

    def feed(self, output: str) -> VirtualScreen:
        return super().feed(output.replace("\n", "\r\n"))


PANEL = Panel(("answering you", "> a line"), 1, 8)


@pytest.mark.parametrize("seed", range(20))
def test_a_resized_terminal_shows_the_panel_once_and_all_of_the_text(seed: int) -> None:
    chance = random.Random(seed)
    canvas, screen = Canvas(80), Screen(80)
    words = [f"word{number}" for number in range(60)]
    for word in words:
        screen.feed(canvas.compose(f"{word} ", PANEL))
        if chance.random() < 0.3:
            screen.feed(canvas.resize(chance.randint(30, 80)))
            screen.feed(canvas.compose("", PANEL))
    assert screen.lines[-2:] == list(PANEL.rows)
    assert " ".join(screen.lines[:-2]).split() == words


def test_a_line_that_no_longer_fits_goes_on_in_the_next_one() -> None:
    canvas, screen = Canvas(80), Screen(80)
    screen.feed(canvas.compose("y" * 50 + " ", PANEL))
    screen.feed(canvas.resize(40) + canvas.compose("and on", PANEL))
    assert screen.lines == ["y" * 50, "and on", *PANEL.rows]


def test_a_resize_beside_no_panel_erases_nothing() -> None:
    canvas, screen = Canvas(80), Screen(80)
    screen.feed(canvas.compose("text", None))
    screen.feed(canvas.resize(40) + canvas.compose(" goes on", PANEL))
    assert screen.lines == ["text goes on", *PANEL.rows]
