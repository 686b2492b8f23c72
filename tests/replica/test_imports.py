import gc
import subprocess
import sys

import pytest

from replica.imports import uncollected

PROGRAM = """
import gc

full = []
gc.callbacks.append(lambda phase, info: full.append(phase) if info["generation"] == 2 else None)
import {module}

assert gc.isenabled()
print(len(full), gc.get_freeze_count())
"""


@pytest.mark.parametrize("module", ["antiphon.cli.main", "syncd.__main__"])
def test_a_program_is_imported_without_a_full_collection(module: str) -> None:
    code = PROGRAM.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    full, frozen = map(int, done.stdout.split())
    assert full == 0
    assert frozen > 50_000


def test_collection_that_is_off_stays_off() -> None:
    before = gc.get_freeze_count()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert gc.get_freeze_count() == before
