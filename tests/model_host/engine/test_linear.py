"""Each kernel computes the product, and no row depends on the others."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from model_host.engine import linear
from model_host.engine.linear import (
    Linear,
    fbgemm_available,
    int4_available,
    int4_fits,
    is_available,
    make_int4,
    make_linear,
    multiply,
)
from model_host.engine.numerics import synthetic, synthetic_four_bits
from model_host.engine.shapes import FAST, HALF, SAFE, Shapes, candidates

ROOT = Path(__file__).parents[3]
OUTPUTS, INPUTS = 80, 96


def _rows(count: int, dtype: torch.dtype, inputs: int = INPUTS) -> torch.Tensor:
    return synthetic((count, inputs), 5, 2.0).to(dtype)


def _bias(dtype: torch.dtype) -> torch.Tensor:
    return synthetic((OUTPUTS,), 6, 3.0).to(dtype)


def _int4(outputs: int, inputs: int, bias: torch.Tensor | None) -> tuple[Linear, torch.Tensor]:
    """Return a layer and the numbers [out, in] that it stands for, in float64."""
    made = synthetic_four_bits("w", (outputs, inputs), 7)
    nibbles, scales = made["w.nibbles"], made["w.scales"].bfloat16()
    columns = torch.cat([nibbles & 15, nibbles >> 4], -1).double()
    scale, zero = scales.double().permute(2, 1, 0)[..., None]
    return make_int4(nibbles, scales, bias), ((columns - 8) * scale + zero).flatten(1)


def _kernels() -> list[tuple[torch.dtype, Shapes]]:
    """Return the closed sets that this machine runs, by dtype."""
    return [
        (dtype, shapes)
        for dtype in (torch.float32, torch.bfloat16)
        for shapes in (FAST, HALF, SAFE)
        if is_available(shapes.linear, dtype)
    ]


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("dtype", "chosen"), _kernels())
def test_a_layer_of_plain_weights_is_the_product(
    dtype: torch.dtype, chosen: Shapes, has_bias: bool
) -> None:
    weight = synthetic((OUTPUTS, INPUTS), 8, 1.0).to(dtype)
    bias = _bias(dtype) if has_bias else None
    exact = _rows(33, dtype).double() @ weight.double().T + (0 if bias is None else bias.double())
    got = multiply(make_linear(weight, bias, chosen), _rows(33, dtype))
    bound = 0.2 if dtype is torch.bfloat16 else 1e-4
    assert got.dtype is dtype
    assert float((got.double() - exact).abs().max()) < bound


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_layer_of_four_bits_is_the_product(has_bias: bool) -> None:
    bias = _bias(torch.bfloat16) if has_bias else None
    layer, weight = _int4(OUTPUTS, INPUTS, bias)
    rows = _rows(33, torch.bfloat16)
    exact = rows.double() @ weight.T + (0 if bias is None else bias.double())
    got = multiply(layer, rows)
    assert float(exact.abs().max()) > 2
    assert float((got.double() - exact).abs().max()) < 0.05


@pytest.mark.parametrize(("outputs", "inputs"), [(960, 576), (576, 1536), (48, 32), (80, 4864)])
def test_a_row_of_a_four_bit_layer_is_the_same_alone_and_among_others(
    outputs: int, inputs: int
) -> None:
    layer, _ = _int4(outputs, inputs, None)
    rows = _rows(130, torch.bfloat16, inputs)
    whole = multiply(layer, rows)
    for size in (1, 2, 3, 4, 5, 7, 8, 11, 16, 31, 64, 65):
        for at in range(0, len(rows) - size, size):
            assert torch.equal(multiply(layer, rows[at : at + size]), whole[at : at + size])


@pytest.mark.parametrize(("dtype", "chosen"), [each for each in _kernels() if each[1] is not SAFE])
def test_a_row_of_a_packed_layer_is_the_same_alone_and_among_others(
    dtype: torch.dtype, chosen: Shapes
) -> None:
    layer = make_linear(synthetic((576, 1536), 8, 1.0).to(dtype), None, chosen)
    assert layer.kernel == chosen.linear
    rows = _rows(64, dtype, 1536)
    whole = multiply(layer, rows)
    for size in (1, 2, 3, 4, 7, 8, 31):
        for at in range(64 - size + 1):
            assert torch.equal(multiply(layer, rows[at : at + size]), whole[at : at + size])


needs_fbgemm = pytest.mark.skipif(not fbgemm_available(), reason="torch has no FBGEMM here")


@needs_fbgemm
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_layer_in_float16_rounds_the_exact_product_once(has_bias: bool) -> None:
    weight = synthetic((OUTPUTS, INPUTS), 8, 1.0).bfloat16()
    bias = _bias(torch.bfloat16) if has_bias else None
    rows = _rows(32, torch.bfloat16)
    exact = rows.double() @ weight.double().T + (0 if bias is None else bias.double())
    layer = make_linear(weight, bias, HALF)
    assert layer.kernel == "half"
    # The sum in float32 may lie on the other side of a border between two numbers of bf16.
    assert (multiply(layer, rows) == exact.bfloat16()).double().mean() > 0.99


@needs_fbgemm
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_layer_packed_in_blocks_has_the_bits_of_one_packed_at_once(
    has_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = synthetic((OUTPUTS, INPUTS), 8, 1.0).bfloat16()
    bias = _bias(torch.bfloat16) if has_bias else None
    rows = _rows(32, torch.bfloat16)
    whole = make_linear(weight, bias, HALF)
    monkeypatch.setattr(linear, "_HALF_OUTPUTS", OUTPUTS // 2 - 1)  # two blocks and a short one
    blocks = make_linear(weight, bias, HALF)
    assert (len(whole.half or ()), len(blocks.half or ())) == (1, 3)
    for count in (1, 3, 32):
        assert torch.equal(multiply(blocks, rows[:count]), multiply(whole, rows[:count]))


@needs_fbgemm
@pytest.mark.parametrize("largest", [6e4, 7e4])
def test_a_weight_that_float16_cant_hold_keeps_its_matrix_in_bf16(largest: float) -> None:
    weight = torch.zeros((OUTPUTS, INPUTS), dtype=torch.bfloat16)
    weight[3, 5] = -largest
    layer = make_linear(weight, None, HALF)
    rows = _rows(4, torch.bfloat16)
    assert layer.kernel == ("half" if largest < 65504 else "plain")
    assert torch.equal(multiply(layer, rows)[:, 3], rows[:, 5] * weight[3, 5])


def test_a_machine_has_one_kind_of_reordered_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    for has_bf16, has_fbgemm, of_bf16, of_fp32 in (
        (True, True, ["packed", "plain"], ["packed", "plain"]),
        (True, False, ["packed", "plain"], ["packed", "plain"]),
        (False, True, ["half", "plain"], ["packed", "plain"]),
        (False, False, ["plain"], ["packed", "plain"]),
    ):
        found = {torch.bfloat16: has_bf16, torch.float32: True}
        monkeypatch.setattr(linear, "packed_available", found.__getitem__)
        monkeypatch.setattr(linear, "fbgemm_available", lambda has=has_fbgemm: has)
        for dtype, wanted in ((torch.bfloat16, of_bf16), (torch.float32, of_fp32)):
            sets = candidates(99, "q4")
            assert [s.linear for s in sets if is_available(s.linear, dtype)] == wanted


@pytest.mark.parametrize("outputs", [8, 16, 20, 48])
def test_the_four_bit_kernel_accepts_what_int4_fits_says(outputs: int) -> None:
    if int4_fits(outputs, 64):
        layer, _ = _int4(outputs, 64, None)
        assert multiply(layer, _rows(2, torch.bfloat16, 64)).shape == (2, outputs)
    else:
        with pytest.raises(RuntimeError):
            _int4(outputs, 64, None)


PROBE = """
import os, sys
from model_host.engine import TorchEngine
from model_host.errors import ModelFileError, NumericsUnsupported
for capability in sys.argv[1:]:
    child = os.fork()  # torch looks at the variable once, when it first computes
    if child:
        assert os.waitpid(child, 0)[1] == 0
        continue
    os.environ["ATEN_CPU_CAPABILITY"] = capability
    try:
        TorchEngine.load("no such file", numerics="q4")
    except (NumericsUnsupported, ModelFileError) as error:
        print(error.reason, error.detail, flush=True)
    os._exit(0)
"""


def test_q4_is_refused_by_name_where_it_would_run_scalar_code() -> None:
    assert int4_available()
    ended = subprocess.run(
        [sys.executable, "-c", PROBE, "default", "avx2"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    refused, taken = ended.stdout.splitlines()
    assert refused.startswith("NUMERICS_UNSUPPORTED ")
    assert "DEFAULT" in refused
    assert taken.startswith("MODEL_FILE_MISSING ")
