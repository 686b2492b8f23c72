"""Who renders next: payers in turn, and answers before calls."""

from model_host.scheduling.render_turns import RenderTurns
from replica.limits import ANSWERS_IN_A_ROW_MAX


def waiting(answers: str = "", calls: str = "") -> RenderTurns[str]:
    """Return turns in which the payers named by letters wait, with numbered work."""
    turns: RenderTurns[str] = RenderTurns()
    for letters, for_answer in ((answers, True), (calls, False)):
        for number, letter in enumerate(letters):
            turns.add(letter.encode(), f"{letter}{number}", for_answer=for_answer)
    return turns


def order(turns: RenderTurns[str]) -> list[str]:
    return [work for _ in range(len(turns)) if (work := turns.next()) is not None]


def test_payers_come_in_turn_and_their_own_work_in_order() -> None:
    assert order(waiting("aaabbc")) == ["a0", "b3", "c5", "a1", "b4", "a2"]


def test_who_comes_anew_overtakes_nobody() -> None:
    turns = waiting("aab")
    assert turns.next() == "a0"
    turns.add(b"c", "c0", for_answer=True)
    assert order(turns) == ["b2", "a1", "c0"]


def test_answers_go_before_calls() -> None:
    assert order(waiting("ab", "ac")) == ["a0", "b1", "a0", "c1"]


def test_calls_that_are_held_back_hold_back_no_answer() -> None:
    turns = waiting("ab", "c")
    assert [turns.next(with_calls=False) for _ in range(3)] == ["a0", "b1", None]
    assert turns.next() == "c0"


def test_a_call_has_its_turn_behind_some_answers() -> None:
    turns = waiting("a" * (2 * ANSWERS_IN_A_ROW_MAX + 1), "bb")
    found = order(turns)
    assert [i for i, work in enumerate(found) if work[0] == "b"] == [
        ANSWERS_IN_A_ROW_MAX,
        2 * ANSWERS_IN_A_ROW_MAX + 1,
    ]


def test_where_nothing_waits_there_is_no_next() -> None:
    turns = waiting("a")
    assert (len(turns), turns.next(), len(turns), turns.next()) == (1, "a0", 0, None)
