"""Linear layers: one kernel per format of the weights (spec/07-host §7).

A layer is called with rows [M, in] and returns [M, out]. No row depends on the others at
the numbers of rows that the closed set names; the self-test measures that.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from model_host.engine.four_bits import GROUP
from model_host.engine.shapes import Shapes

_PACK_TILES = 8
_ROWS_MULTIPLE = 16
_VECTOR = ("AVX2", "AVX512")
"""Capabilities for which torch has vector code for four bits."""


class Linear(Protocol):
    """A linear layer bound to its kernel."""

    def __call__(self, rows: torch.Tensor, /) -> torch.Tensor:
        """Map rows [M, in] to [M, out]."""


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """oneDNN, with weights reordered at load.

    With weights packed once at load, the linear layers of a decode step take two thirds of
    the time of the plain kernel. A single row would run another kernel, with other bits than
    the same row among several: it is padded to two.
    """

    packed: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, rows: torch.Tensor, /) -> torch.Tensor:
        """Map rows [M, in] to [M, out]."""
        if len(rows) == 1:
            return self(functional.pad(rows, (0, 0, 0, 1)))[:1]
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(
            rows, self.packed, self.bias, "none", [], ""
        )
        return result


@dataclass(frozen=True, slots=True)
class PlainLinear:
    """torch's ordinary kernel."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, rows: torch.Tensor, /) -> torch.Tensor:
        """Map rows [M, in] to [M, out]."""
        return functional.linear(rows, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Int4Linear:
    """Four-bit weights that the kernel unpacks as it multiplies; bf16 rows only.

    packed: bytes in an order of this CPU's capability. scales: bf16 [in / 32, out, 2],
    scale and zero of each group.
    """

    packed: torch.Tensor
    scales: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, rows: torch.Tensor, /) -> torch.Tensor:
        """Map rows [M, in] to [M, out]."""
        result: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            rows, self.packed, GROUP, self.scales
        )
        return result if self.bias is None else result.add_(self.bias)


def packed_available(dtype: torch.dtype) -> bool:
    """Say whether oneDNN supports reordered weights of this dtype on this machine."""
    if not torch.backends.mkldnn.is_available() or not hasattr(  # type: ignore[no-untyped-call]
        torch.ops.mkldnn, "_reorder_linear_weight"
    ):
        return False
    return dtype is not torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def int4_available() -> bool:
    """Say whether this machine multiplies four-bit weights in vector code."""
    return torch.backends.cpu.get_cpu_capability() in _VECTOR


def int4_fits(outputs: int, inputs: int) -> bool:
    """Say whether the four-bit kernel accepts a matrix [outputs, inputs]."""
    return outputs % _ROWS_MULTIPLE == 0 and inputs % GROUP == 0


def make_linear(weight: torch.Tensor, bias: torch.Tensor | None, shapes: Shapes) -> Linear:
    """Bind a weight [out, in] to the kernel that the shapes name; packing copies the weight."""
    if shapes.linear == "plain":
        return PlainLinear(weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, shapes.row_buckets[-1])
    return PackedLinear(packed, bias)


def make_int4(nibbles: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Pack nibbles [out, in / 32, 16], see FourBits, for this CPU.

    The kernel ignores the strides of its scales, and returns wrong numbers without an error.
    """
    columns = torch.cat([nibbles & 15, nibbles >> 4], -1).flatten(1).int()
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(columns, _PACK_TILES)
    return Int4Linear(packed, scales.contiguous(), bias)
