"""All mutants, and the survivors that are no other core."""

from collections.abc import Iterator

from tests.mutation.equivalent import EQUIVALENT, OPEN
from tests.mutation.hand_written import hand_written
from tests.mutation.mutant import Mutant, generated
from tests.mutation.targets import TARGETS

__all__ = ["EQUIVALENT", "KILLED_MIN", "OPEN", "mutants"]

KILLED_MIN = 0.97
"""Share of the mutants that differ from the core; the vectors alone kill as many."""


def mutants() -> Iterator[Mutant]:
    """Return all mutants."""
    for path, functions in TARGETS.items():
        yield from generated(path, functions)
    yield from hand_written()
