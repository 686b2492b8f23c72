"""A flipped bit anywhere in a data folder is harmless, healed, or mended by a command."""

import pytest

from tests.faults import folders
from tests.faults.flips import run

EACH = 1999
"""Every such byte is judged here; `make faults` judges all of them."""


@pytest.mark.parametrize("start", [0, 1000])
@pytest.mark.parametrize("kind", folders.KINDS)
async def test_no_flipped_bit_is_a_dead_end(kind: str, start: int) -> None:
    outcomes, violations = await run(kind, EACH, start)
    assert violations == []
    assert outcomes["harmless"]
