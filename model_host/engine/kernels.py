"""The attention kernel (spec/07-host §5)."""

import torch


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend with queries [B, H, R, D] over keys and values [B, H, K, D].

    The mask is added to the scores and broadcasts to [B, H, R, K]. Returns the result
    [B, H, R, D], and the logarithm of the sum of the exponentials of the scores, float32
    [B, H, R]. A row whose keys are all masked gives 0 and 0, not minus infinity: the caller
    runs none. Compiled as a part of the step (model_host/engine/step.py).
    """
    result, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, 0.0, False, attn_mask=mask
    )
    return result, lse
