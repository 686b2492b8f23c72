"""A sample of the mutants; `make mutants` runs all of them."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.mutation.catalogue import EQUIVALENT, OPEN, mutants
from tests.mutation.mutant import Mutant, by_hand
from tests.mutation.run import Result, run

STEP = 60
"""One of so many mutants is in the sample."""


UNCHANGED = by_hand("replica/log/digest.py", "nothing")


@pytest.fixture(scope="module")
def every() -> list[Mutant]:
    return list(mutants())


@pytest.fixture(scope="module")
def results(every: list[Mutant]) -> list[Result]:
    """Run a sample, and what is no mutant, in one new process.

    The threads of this one may not survive a fork.
    """
    sample = [m for m in every[::STEP] if m.key not in EQUIVALENT | OPEN]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_run_here, [UNCHANGED, *sample], 2).result()


def _run_here(mutants: list[Mutant], jobs: int) -> list[Result]:
    return list(run(mutants, jobs))


def test_there_are_enough_mutants_with_names_of_their_own(every: list[Mutant]) -> None:
    keys = [mutant.key for mutant in every]
    assert len(set(keys)) == len(keys) >= 250
    assert EQUIVALENT.keys() | OPEN.keys() <= set(keys)


def test_the_vectors_alone_kill_a_sample(results: list[Result]) -> None:
    killers = {r.mutant.key: r.killer for r in results if r.mutant.key != UNCHANGED.key}
    assert len(killers) >= 10
    assert [key for key, killer in killers.items() if killer is None] == []


def test_a_module_that_did_not_change_survives(results: list[Result]) -> None:
    assert [r.killer for r in results if r.mutant.key == UNCHANGED.key] == [None]
