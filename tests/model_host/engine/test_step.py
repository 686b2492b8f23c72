"""The layers of a step: compiled, and in Python where torch can't compile them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.pages import Memory
from model_host.engine import step
from tests.model_host.engine import tiny_model

IDS = [7 * at % 200 for at in range(600)]
CUTS = (500, 1, 12, 3, 84)

WITHOUT_ONEDNN = """
import sys
from pathlib import Path
from types import SimpleNamespace
import torch
torch.ops.mkldnn = SimpleNamespace()  # a build without it has none of its operators
from model_host.engine import step
from model_host.engine.torch_engine import TorchEngine
engine = TorchEngine.load(Path(sys.argv[1]), numerics="fp32", threads=1)
print(step._compiled is step._run_layers, engine.model.layers[0].qkv.kernel, engine.bitwise)
"""


def test_the_layers_are_compiled_here() -> None:
    assert isinstance(step._compiled, torch.jit.ScriptFunction)


def test_a_torch_without_onednn_computes_in_python(tmp_path: Path) -> None:
    path = tiny_model.write(tmp_path / "model.gguf")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ONEDNN, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("True plain True\n", 0), done.stderr


def test_compiled_layers_give_the_bits_of_python(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The self-test runs the functions of the layers in Python, a step those compiled."""
    pages, again = memory.pages(1, 0), memory.pages(3, 2)
    logits = memory.compute(pages, IDS, CUTS)
    monkeypatch.setattr(step, "_compiled", step._run_layers)
    assert np.array_equal(memory.compute(again, IDS, CUTS), logits)
    assert np.array_equal(memory.keys_values(again), memory.keys_values(pages))
