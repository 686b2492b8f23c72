"""The layers of the step function that work row by row (spec/07-host §5).

Each runs on rows of a bucket's size (model_host/engine/shapes.py), for which no row's result
depends on the others. The sum of all layers, the residual, is float32: it is nearer to the
exact one than a sum in bf16, and takes no more time.
"""

from typing import NamedTuple

import torch
from torch.nn import functional

from model_host.engine.model import Layer, Model

_EPS_COLUMNS = 16  # a multiple of the vector width


class Residual(NamedTuple):
    """The sum of all layers so far, in float32.

    wide: [M, W + 16]. After the row comes sqrt(W * eps), and then zeros, so that the length
    of the whole is the root in RMSNorm times sqrt(W). rows: [M, W], a view of it.
    """

    wide: torch.Tensor
    rows: torch.Tensor

    @classmethod
    def make(cls, model: Model, rows: torch.Tensor) -> "Residual":
        """Return the residual of rows [M, W]."""
        count, width = rows.shape
        wide = rows.new_zeros((count, width + _EPS_COLUMNS), dtype=torch.float32)
        wide[:, :width] = rows
        wide[:, width] = (width * model.config.rms_eps) ** 0.5
        return cls(wide, wide[:, :width])


def rms_norm(model: Model, hidden: Residual, weight: torch.Tensor) -> torch.Tensor:
    """Normalise a residual in float32, rounded once to the model's dtype, [M, W].

    torch's rms_norm takes twice as long as these four kernels.
    """
    length = torch.linalg.vector_norm(hidden.wide, 2, -1, True)
    return torch.div(hidden.rows, length).mul_(weight).to(model.dtype)


def _head_norm(model: Model, heads: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Normalise each head [M, H, D] in float32, rounded once to the model's dtype."""
    wide = heads.float()
    length = torch.linalg.vector_norm(wide, 2, -1, True)
    mean = length.square_().div_(wide.shape[-1]).add_(model.config.rms_eps)
    return wide.mul_(mean.rsqrt_()).mul_(weight).to(model.dtype)


def rotary_rows(model: Model, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin [M, H + 2 H_kv, D] for the positions [M].

    For values, cos is 1 and sin is 0, so that queries, keys and values go through the same
    three kernels.
    """
    config = model.config
    rotated, width = config.heads + config.kv_heads, config.head_width
    shape = (len(positions), rotated + config.kv_heads, width)
    cos, sin = model.cos.new_ones(shape), model.sin.new_zeros(shape)
    cos[:, :rotated] = model.cos[positions][:, None]
    sin[:, :rotated] = model.sin[positions][:, None]
    return cos, sin


def project(
    model: Model,
    layer: Layer,
    hidden: Residual,
    rotary: tuple[torch.Tensor, torch.Tensor],
    heads: torch.Tensor,
) -> None:
    """Write rotated queries, rotated keys and values of a residual to heads [M, H + 2 H_kv, D]."""
    normed = rms_norm(model, hidden, layer.attn_norm)
    plain = layer.qkv(normed).view(heads.shape)
    if layer.qk_norm is not None:
        rotated = plain[:, : len(layer.qk_norm)]
        rotated.copy_(_head_norm(model, rotated, layer.qk_norm))
    torch.mul(plain, rotary[0], out=heads)
    heads.addcmul_(plain.roll(model.config.head_width // 2, -1), rotary[1])


def feed_forward(model: Model, layer: Layer, hidden: Residual) -> torch.Tensor:
    """Return the gated feed-forward [M, W] of a residual."""
    normed = rms_norm(model, hidden, layer.ffn_norm)
    gate, up = layer.gate_up(normed).chunk(2, 1)
    return layer.down(functional.silu(gate).mul_(up))


def head(model: Model, hidden: Residual) -> torch.Tensor:
    """Return logits [M, V] in the model's dtype for a residual."""
    return model.head(rms_norm(model, hidden, model.norm))
