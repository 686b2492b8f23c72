"""Linear layers: one kernel per format of the weights (spec/07-host §7).

No row depends on the others at the numbers of rows that the closed set names; the self-test
measures that. `multiply` is compiled as a part of the step (model_host/engine/step.py).
"""

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch.nn import functional

from model_host.engine.four_bits import GROUP
from model_host.engine.shapes import Shapes

_PACK_TILES = 8
_ROWS_MULTIPLE = 16
_HALF_OUTPUTS = 8192
"""Outputs that FBGEMM packs at once: of a matrix that the cache doesn't hold, it packs each
weight three times as slowly."""
Kernel = Literal["int4", "half", "packed", "plain"]

if TYPE_CHECKING:
    HalfWeight = torch.ScriptObject
else:
    HalfWeight = torch.classes.quantized.LinearPackedParamsBase  # its name in TorchScript

_VECTOR = ("AVX2", "AVX512")
"""Capabilities for which torch has vector code for four bits."""


class Linear(NamedTuple):
    """A linear layer, whose tensors say which kernel multiplies them.

    weight: with scales, numbers of four bits in an order of this CPU's capability, which the
    kernel unpacks as it multiplies bf16 rows. Without, [out, in]: reordered at load for
    oneDNN, which takes two thirds of the plain kernel's time in a decode step, or for torch's
    ordinary kernel. scales: bf16 [in / 32, out, 2], scale and zero of each group. half: in
    place of an empty weight and of the bias, both packed for FBGEMM by blocks of outputs, with
    a weight of float16.
    """

    weight: torch.Tensor
    scales: torch.Tensor | None
    bias: torch.Tensor | None
    half: list[HalfWeight] | None = None

    @property
    def kernel(self) -> Kernel:
        """The kernel that `multiply` runs."""
        if self.half is not None:
            return "half"
        if self.scales is not None:
            return "int4"
        return "packed" if self.weight.is_mkldnn else "plain"


def multiply(layer: Linear, rows: torch.Tensor) -> torch.Tensor:
    """Map rows [M, in] to [M, out]."""
    bias, scales, half = layer.bias, layer.scales, layer.half
    if half is not None:
        return _multiply_half(half, rows)
    if scales is not None:
        group = rows.size(1) // scales.size(0)
        result: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            rows, layer.weight, group, scales
        )
        return result if bias is None else result.add_(bias)
    if not layer.weight.is_mkldnn:
        return functional.linear(rows, layer.weight, bias)
    # A single row would run another kernel, with other bits than the same row among several,
    # and two take a quarter longer than four.
    missing = 4 - rows.size(0)
    padded = functional.pad(rows, (0, 0, 0, missing)) if missing > 0 else rows
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
        padded, layer.weight, bias, "none", [], ""
    )
    return product[: rows.size(0)]


def _multiply_half(blocks: list[HalfWeight], rows: torch.Tensor) -> torch.Tensor:
    """Map rows [M, in] to [M, out] in float32, and round each product once.

    FBGEMM has kernels for one to six rows, of which those for one and two have other bits.
    It needs none of these two where the number of rows is a multiple of 3.
    """
    padded, missing = rows.float(), -rows.size(0) % 3
    if missing:
        padded = functional.pad(padded, (0, 0, 0, missing))
    products: list[torch.Tensor] = [
        torch.ops.quantized.linear_dynamic_fp16(padded, block)[: rows.size(0)].to(rows.dtype)
        for block in blocks
    ]
    return products[0] if len(products) == 1 else torch.cat(products, 1)


def packed_available(dtype: torch.dtype) -> bool:
    """Say whether oneDNN supports reordered weights of this dtype on this machine."""
    if not torch.backends.mkldnn.is_available() or not hasattr(  # type: ignore[no-untyped-call]
        torch.ops.mkldnn, "_reorder_linear_weight"
    ):
        return False
    return dtype is not torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def fbgemm_available() -> bool:
    """Say whether torch multiplies by weights in float16 on this machine."""
    return torch.backends.quantized.engine in ("x86", "fbgemm")


def half_available() -> bool:
    """Say whether bf16 rows are multiplied by weights in float16 on this machine.

    That is where it has no instructions for bf16: the ordinary kernel takes up to ten times
    as long (DECISIONS D530).
    """
    return fbgemm_available() and not packed_available(torch.bfloat16)


def is_available(linear: str, dtype: torch.dtype) -> bool:
    """Say whether this machine has the linear kernel of a closed set for a model's dtype."""
    if linear == "half":
        return dtype is torch.bfloat16 and half_available()
    return linear == "plain" or packed_available(dtype)


def int4_available() -> bool:
    """Say whether this machine multiplies four-bit weights in vector code."""
    return torch.backends.cpu.get_cpu_capability() in _VECTOR


def int4_fits(outputs: int, inputs: int) -> bool:
    """Say whether the four-bit kernel accepts a matrix [outputs, inputs]."""
    return outputs % _ROWS_MULTIPLE == 0 and inputs % GROUP == 0


def make_linear(weight: torch.Tensor, bias: torch.Tensor | None, shapes: Shapes) -> Linear:
    """Bind a weight [out, in] to the kernel that the shapes name; packing copies the weight."""
    if shapes.linear == "half":
        half = _pack_half(weight, bias)
        if half is not None:
            return Linear(weight.new_empty(0), None, None, half)
    elif shapes.linear == "packed":
        weight = torch.ops.mkldnn._reorder_linear_weight(weight, shapes.row_buckets[-1])
    return Linear(weight, None, bias)


def _pack_half(weight: torch.Tensor, bias: torch.Tensor | None) -> "list[HalfWeight] | None":
    """Pack a bf16 weight [out, in] as float16; None if one of its numbers is too large for it.

    Numbers of at least 2**-17 are exact. Of a smaller one, 2**-25 at most is lost.
    """
    least, most = weight.aminmax()
    if max(-float(least), float(most)) > torch.finfo(torch.float16).max:
        return None
    blocks = [slice(at, at + _HALF_OUTPUTS) for at in range(0, len(weight), _HALF_OUTPUTS)]
    return [
        torch.ops.quantized.linear_prepack_fp16(
            weight[block].float(), bias[block].float() if bias is not None else None
        )
        for block in blocks
    ]


def make_int4(nibbles: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Pack nibbles [out, in / 32, 16], see FourBits, for this CPU.

    The kernel ignores the strides of its scales, and returns wrong numbers without an error.
    """
    columns = torch.cat([nibbles & 15, nibbles >> 4], -1).flatten(1).int()
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(columns, _PACK_TILES)
    return Linear(packed, scales.contiguous(), bias)
