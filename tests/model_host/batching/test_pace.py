"""The rows of prompts beside sequences that decode (spec/07-host §5)."""

from model_host.batching.pace import GUESS_COST_FIRST, ROWS_MIN, SLOWER_MAX, Pace


def measured(decode_s: float, row_s: float) -> Pace:
    pace = Pace()
    for _ in range(30):
        pace.observe(decode_s, decoding=2, prompt_rows=0)
        pace.observe(decode_s + 64 * row_s, decoding=2, prompt_rows=64)
    return pace


def test_a_step_with_prompts_stays_within_its_time():
    rows = measured(0.012, 0.0008).prompt_rows_max()
    assert 0.9 * SLOWER_MAX < (0.012 + rows * 0.0008) / 0.012 <= SLOWER_MAX


def test_a_prompt_makes_progress_on_a_machine_with_slow_prefill():
    assert measured(0.001, 0.5).prompt_rows_max() == ROWS_MIN


def test_before_a_measurement_the_rows_are_few():
    pace = Pace()
    assert pace.prompt_rows_max() == 64
    pace.observe(0.01, decoding=1, prompt_rows=0)
    assert pace.prompt_rows_max() == 64


def test_prompts_alone_are_measured_too():
    pace = Pace()
    pace.observe(0.4, decoding=0, prompt_rows=500)
    pace.observe(0.01, decoding=1, prompt_rows=0)
    assert pace.prompt_rows_max() == int((SLOWER_MAX - 1) * 0.01 / 0.0008)


def test_one_slow_step_changes_little():
    pace = measured(0.012, 0.0008)
    before = pace.prompt_rows_max()
    pace.observe(0.06, decoding=2, prompt_rows=0)
    assert before < pace.prompt_rows_max() <= 2.1 * before


def test_a_step_without_rows_is_no_measurement():
    pace = Pace()
    pace.observe(1.0, decoding=0, prompt_rows=0)
    assert pace.prompt_rows_max() == 64


def guessed(decode_s: float, row_s: float, steps: int = 20) -> Pace:
    pace = Pace()
    for _ in range(steps):
        pace.observe(decode_s, decoding=1, prompt_rows=0)
        pace.observe(decode_s + 3 * row_s, decoding=1, prompt_rows=0, guesses=3)
    return pace


def test_the_cost_of_a_guess_is_that_of_a_row_beside_a_step():
    assert Pace().guess_cost == GUESS_COST_FIRST
    assert abs(guessed(0.010, 0.003).guess_cost - 0.3) < 0.03
    assert guessed(0.010, 0.0).guess_cost < 0.02


def test_a_step_with_guesses_is_no_measure_of_one_without():
    pace, other = Pace(), Pace()
    for each in (pace, other):
        each.observe(0.010, decoding=1, prompt_rows=0)
        each.observe(0.4, decoding=0, prompt_rows=500)
    pace.observe(0.050, decoding=1, prompt_rows=0, guesses=7)
    assert pace.prompt_rows_max() == other.prompt_rows_max()


def test_a_cost_measured_while_the_machine_was_busy_is_forgotten():
    pace = guessed(0.010, 0.001)
    for _ in range(5):
        pace.observe(9.0, decoding=1, prompt_rows=0, guesses=1)
    assert 0.5 < pace.guess_cost <= 1.0
    for _ in range(200):
        pace.observe(0.010, decoding=1, prompt_rows=0)
    assert pace.guess_cost < 0.12
