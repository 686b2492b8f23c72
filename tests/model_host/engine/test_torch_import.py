"""Torch as a host imports it: without parts for compilers, which come when they are asked for.

A process of its own, a second and a half: this one has imported torch.
"""

import subprocess
import sys

from model_host.engine.torch_import import DEFERRED

PROGRAM = f"""
import sys
from model_host.engine import torch_import
torch_import.begin_loading()
torch_import.import_torch()
import torch
assert not [name for name in {DEFERRED!r} if name in sys.modules]
assert not hasattr(torch, "export")
assert torch.ones(2, 3).matmul(torch.ones(3, 1)).tolist() == [[3.0], [3.0]]
import torch.export, torch._meta_registrations
print(torch.export.export.__name__)
"""


def test_deferred_modules_are_imported_when_something_asks_for_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("export\n", 0), done.stderr
