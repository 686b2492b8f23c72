"""The layers of the step function that work row by row (spec/07-host §5).

Each runs on rows of a bucket's size (model_host/engine/shapes.py), for which no row's result
depends on the others. The sum of all layers, the residual, is float32: it is nearer to the
exact one than a sum in bf16, and takes no more time. `project` and `feed_forward` are compiled
as parts of the step (model_host/engine/step.py).
"""

from typing import NamedTuple

import torch
from torch.nn import functional

from model_host.engine.linear import multiply
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


def rms_norm(hidden: Residual, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Normalise a residual in float32, rounded once to the model's dtype, [M, W].

    torch's rms_norm takes twice as long as these four kernels.
    """
    length = torch.linalg.vector_norm(hidden.wide, 2, -1, True)
    return torch.div(hidden.rows, length).mul_(weight).to(dtype)


def _head_norm(heads: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Normalise each head [M, H, D] in float32, rounded once to the dtype it had."""
    wide = heads.float()
    length = torch.linalg.vector_norm(wide, 2, -1, True)
    mean = length.square_().div_(wide.size(-1)).add_(eps)
    return wide.mul_(mean.rsqrt_()).mul_(weight).to(heads.dtype)


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
    layer: Layer,
    hidden: Residual,
    rotary: tuple[torch.Tensor, torch.Tensor],
    heads: torch.Tensor,
    eps: float,
) -> None:
    """Write rotated queries, rotated keys and values of a residual to heads [M, H + 2 H_kv, D].

    `eps` is that of the norms of heads, in models that have them.
    """
    normed = rms_norm(hidden, layer.attn_norm, heads.dtype)
    plain = multiply(layer.qkv, normed).view(heads.size())
    qk_norm = layer.qk_norm
    if qk_norm is not None:
        rotated = plain[:, : qk_norm.size(0)]
        rotated.copy_(_head_norm(rotated, qk_norm, eps))
    torch.mul(plain, rotary[0], out=heads)
    heads.addcmul_(plain.roll(heads.size(2) // 2, -1), rotary[1])


def feed_forward(layer: Layer, hidden: Residual, dtype: torch.dtype) -> torch.Tensor:
    """Return the gated feed-forward [M, W] of a residual, in the model's dtype."""
    normed = rms_norm(hidden, layer.ffn_norm, dtype)
    gate, up = multiply(layer.gate_up, normed).chunk(2, 1)
    return multiply(layer.down, functional.silu(gate).mul_(up))


def head(model: Model, hidden: Residual) -> torch.Tensor:
    """Return logits [M, V] in the model's dtype for a residual."""
    return multiply(model.head, rms_norm(hidden, model.norm, model.dtype))
