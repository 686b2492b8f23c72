"""The compute threads of a step, chosen by measured time."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from model_host.engine.compute_threads import (
    FEW_ROWS,
    PROBE_FIRST,
    PROBE_LAST,
    PROBE_STEPS,
    SLOWER,
    StepThreads,
    ThreadChoice,
    compute_threads,
    spin_settings,
)
from model_host.engine.numerics import synthetic_model
from model_host.engine.shapes import SAFE
from model_host.engine.torch_engine import TorchEngine
from tests.model_host.engine import tiny_model

STEPS = 4_000


def test_the_spin_is_set_for_gnu_openmp_alone(tmp_path: Path) -> None:
    torch_folder = tmp_path / "torch"
    assert not spin_settings({}, torch_folder)
    (tmp_path / "torch.libs").mkdir()
    (tmp_path / "torch.libs" / "libgomp-0123.so.1.0.0").touch()
    added = spin_settings({"OMP_NUM_THREADS": "2"}, torch_folder)
    assert added == {"GOMP_SPINCOUNT": "1000", "OMP_WAIT_POLICY": "active"}
    for name in added:
        assert not spin_settings({name: "passive"}, torch_folder)


@pytest.mark.skipif(
    not spin_settings({}, Path(torch.__file__).parent), reason="this torch has another OpenMP"
)
def test_openmp_takes_the_settings() -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    result = subprocess.run(
        [sys.executable, "-c", "import model_host.engine.compute_threads, torch"],
        env=kept | {"OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "OMP_WAIT_POLICY = 'ACTIVE'" in result.stderr
    assert "GOMP_SPINCOUNT = '1000'" in result.stderr


def run(choice: ThreadChoice, steps: int, seconds: Callable[[int], float]) -> list[int]:
    """Return the threads of each step, which takes the seconds of its number of threads."""
    used = []
    for _ in range(steps):
        used.append(choice.threads)
        choice.took(seconds(choice.threads))
    return used


def test_all_threads_compute_where_they_are_faster() -> None:
    used = run(ThreadChoice(2), STEPS, lambda threads: 0.03 / threads)
    assert used[:PROBE_FIRST] == [2] * PROBE_FIRST
    assert 0 < used.count(1) <= STEPS / PROBE_LAST[0] + 1
    assert used[: PROBE_LAST[0]].count(1) == 1


def test_a_probe_that_is_slower_ends_at_once() -> None:
    used = run(ThreadChoice(2), PROBE_FIRST + 2, lambda threads: 0.03 * SLOWER**2 / threads)
    assert used == [2] * PROBE_FIRST + [1, 2]
    near = run(ThreadChoice(2), PROBE_FIRST + 4, lambda threads: 0.03 + 0.003 * (threads == 1))
    assert near == [2] * PROBE_FIRST + [1] * PROBE_STEPS + [2]


def test_one_fewer_computes_where_others_need_the_core() -> None:
    used = run(ThreadChoice(16), STEPS, lambda threads: 0.4 if threads == 16 else 0.03)
    assert set(used) == {15, 16}
    assert used.count(16) <= PROBE_FIRST + PROBE_STEPS * (10 + STEPS // PROBE_LAST[1])


def test_the_choice_follows_the_machine() -> None:
    choice = ThreadChoice(2)
    run(choice, STEPS, lambda threads: 0.03 / threads)
    while choice.threads == 2:
        choice.took(0.015)
    choice.took(0.03)  # a probe has just ended
    busy = run(choice, PROBE_LAST[0] + PROBE_STEPS, lambda threads: 0.1 * threads)
    assert busy[-PROBE_STEPS:] == [1] * PROBE_STEPS
    assert choice.threads == 1
    run(choice, STEPS, lambda threads: 0.1 * threads)
    free = run(choice, PROBE_LAST[1] + 2 * PROBE_STEPS, lambda threads: 0.03 / threads)
    assert free[-1] == 2


def test_a_probe_of_all_threads_does_not_end_with_one_delayed_step() -> None:
    choice = ThreadChoice(2)
    run(choice, STEPS, lambda threads: 0.03 * threads)
    assert choice.threads == 1
    left = iter(range(PROBE_LAST[1] + PROBE_STEPS))
    while choice.threads == 1:
        next(left)
        choice.took(0.03)
    for seconds in (0.06, 0.015, 0.015):
        assert choice.threads == 2
        choice.took(seconds)
    assert choice.threads == 2


def test_a_small_difference_changes_nothing() -> None:
    used = run(ThreadChoice(2), STEPS, lambda threads: 0.03 if threads == 2 else 0.0297)
    assert used[-PROBE_LAST[0] :].count(2) >= PROBE_LAST[0] - PROBE_STEPS


def test_one_thread_is_never_fewer() -> None:
    assert set(run(ThreadChoice(1), 100, lambda _: 0.03)) == {1}


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_both_numbers_are_tried_for_few_rows_and_left_behind_a_step() -> None:
    threads = StepThreads(2, may_vary=True)
    used = []
    for _ in range(PROBE_FIRST + 1):
        with threads.computing(1):
            used.append(torch.get_num_threads())
        assert torch.get_num_threads() == 2
    assert used == [2] * PROBE_FIRST + [1]


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("rows", "may_vary"), [(FEW_ROWS + 1, True), (1, False)])
def test_many_rows_or_bits_that_would_differ_are_computed_by_all(rows: int, may_vary: bool) -> None:
    threads = StepThreads(2, may_vary=may_vary)
    for _ in range(PROBE_FIRST + PROBE_STEPS):
        with threads.computing(rows):
            assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_the_number_is_as_before_behind_an_error() -> None:
    with pytest.raises(ZeroDivisionError), compute_threads(1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_a_model_loaded_beside_a_step_with_fewer_threads_gets_all(tmp_path: Path) -> None:
    path = tiny_model.write(tmp_path / "model.gguf")
    with ThreadPoolExecutor(1) as thread:
        with compute_threads(1):
            loaded = thread.submit(TorchEngine.load, path, numerics="fp32").result()
            assert torch.get_num_threads() == 1
        assert loaded.threads._threads == 2
        assert thread.submit(torch.get_num_threads).result() == 2
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_a_thread_whose_first_step_falls_beside_fewer_computes_with_all() -> None:
    threads = StepThreads(2, may_vary=False)

    def used() -> int:
        with threads.computing(FEW_ROWS + 1):
            return torch.get_num_threads()

    with ThreadPoolExecutor(1) as thread:
        with compute_threads(1):
            assert thread.submit(used).result() == 2
        assert thread.submit(used).result() == 2
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_built_model_leaves_the_number_of_compute_threads(threads: int) -> None:
    with compute_threads(threads):
        synthetic_model(tiny_model.LLAMA, "fp32", SAFE)
        assert torch.get_num_threads() == threads
