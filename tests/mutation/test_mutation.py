"""A sample of the mutants; `make mutants` runs all of them."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.mutation.catalogue import EQUIVALENT, OPEN, mutants
from tests.mutation.mutant import Mutant, by_hand
from tests.mutation.run import Result, run

STEP = 60
"""One of so many mutants is in the sample."""


def results_of(mutants: list[Mutant], jobs: int) -> list[Result]:
    """Run mutants from a new process: the threads of this one may not survive a fork."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_run_here, mutants, jobs).result()


def _run_here(mutants: list[Mutant], jobs: int) -> list[Result]:
    return list(run(mutants, jobs))


def test_there_are_enough_mutants_with_names_of_their_own() -> None:
    keys = [mutant.key for mutant in mutants()]
    assert len(set(keys)) == len(keys) >= 250
    assert EQUIVALENT.keys() | OPEN.keys() <= set(keys)


def test_the_vectors_alone_kill_a_sample() -> None:
    sample = [m for m in list(mutants())[::STEP] if m.key not in EQUIVALENT | OPEN]
    assert [r.mutant.key for r in results_of(sample, 2) if r.killer is None] == []


def test_a_module_that_did_not_change_survives() -> None:
    unchanged = by_hand("replica/log/digest.py", "nothing")
    assert [result.killer for result in results_of([unchanged], 1)] == [None]
