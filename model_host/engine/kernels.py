"""The attention kernel of each kind of device (spec/07-host §5)."""

from collections.abc import Callable

import torch

Attention = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None],
    tuple[torch.Tensor, torch.Tensor],
]
"""Attend with queries [B, H, R, D] over keys and values [B, H, K, D], under an additive mask
that broadcasts to [B, H, R, K], or none. Return the result [B, H, R, D], and the logarithm of
the sum of the exponentials of the scores, float32 [B, H, R].

A row whose keys are all masked gives 0 and 0, not minus infinity: the caller runs none.
"""


def _attend_cpu(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, 0.0, False, attn_mask=mask
    )


ATTENTION: dict[str, Attention] = {"cpu": _attend_cpu}
"""By the type of the device."""
