"""Lines about something that goes on: one per state, then one a minute."""

from replica.io.process.repeated import SAY_S, STATES_MAX, Repeated


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_state_is_said_once_and_then_once_a_minute_with_how_often_it_was_met():
    clock = Clock()
    lines = Repeated(clock)
    assert lines.due("full") == 1
    for _ in range(9):
        clock.now += 1.0
        assert lines.due("full") == 0
    clock.now = SAY_S
    assert lines.due("full") == 10
    assert lines.due("full") == 0


def test_another_state_is_said_at_once():
    lines = Repeated(Clock())
    assert [lines.due(state) for state in ("full", "read-only", "full", "read-only")] == [
        1, 1, 0, 0,
    ]  # fmt: skip


def test_a_bounded_number_of_lines_is_said_in_a_minute():
    """A hub may invent reasons and entries, one for each fault that it sends."""
    clock = Clock()
    lines = Repeated(clock)
    assert all(lines.due(state) for state in range(STATES_MAX))
    assert not any(lines.due(state) for state in range(STATES_MAX, 1000))
    clock.now = SAY_S
    assert lines.due(1) == 1
    assert lines.due(1000) == 1
    assert all(lines.due(state) for state in range(2, STATES_MAX))
    assert lines.due(1001) == 0
