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


def test_a_bounded_number_of_states_is_remembered():
    lines = Repeated(Clock())
    assert all(lines.due(state) for state in range(STATES_MAX + 1))
    assert lines.due(STATES_MAX) == 0
    assert lines.due(0) == 1
