"""The lines of `antiphon log --graph`, on terminals that are narrower than the drawing."""

import pytest

from antiphon.cli.views.graph import draw, lines_of
from antiphon.cli.views.names import NOBODY
from tests.support.branches import Scene

WIDTH, NESTED = 79, 45


@pytest.fixture(scope="module")
def nested() -> Scene:
    """A conversation in which each answer was retried, the last one first: branches nest."""
    scene, turns = Scene(), []
    for _ in range(NESTED):
        behind = turns[-1][::-1] if turns else ()
        asked = scene.ask(*behind[:1], basis=behind[1] if behind else None)
        seal = scene.seal(asked)
        turns.append((seal, scene.answer(seal)))
    for seal, answer in reversed(turns[:-1]):
        scene.answer(scene.seal(scene.ask(answer, basis=seal, fork=True)))
    return scene


def test_each_entry_has_its_words_however_deep_branches_nest(nested: Scene) -> None:
    lines = list(draw(nested.held, NOBODY))
    assert max(len(line.drawing) for line in lines) > WIDTH
    for line, shown in zip(lines, lines_of(lines, WIDTH), strict=True):
        assert shown.cell_len <= WIDTH
        if line.row is not None:
            assert f"{line.row.id}  {line.row.who}" in shown.plain
            assert line.row.text in shown.plain
        # The end of the drawing says what the line is, and where a branch leaves another.
        assert line.drawing[-WIDTH // 4 :] in shown.plain


def test_in_a_file_the_drawing_is_whole(nested: Scene) -> None:
    lines = list(draw(nested.held, NOBODY))
    assert all(
        shown.plain.startswith(line.drawing)
        for line, shown in zip(lines, lines_of(lines, None), strict=True)
    )
