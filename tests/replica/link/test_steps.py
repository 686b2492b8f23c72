"""Work in steps returns its result, whoever runs it (LINK-92)."""

from replica.link.steps import Steps, finished


def _counted(steps: int) -> Steps[str]:
    for _ in range(steps):
        yield
    return f"{steps} steps"


def test_all_steps_are_run_and_their_result_is_returned() -> None:
    assert finished(_counted(3)) == "3 steps"
    assert finished(_counted(0)) == "0 steps"


def test_others_run_between_steps() -> None:
    steps = _counted(2)
    assert [next(steps), next(steps)] == [None, None]
    assert finished(steps) == "2 steps"
