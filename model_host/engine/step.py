"""The one step function: prefill chunks, decode and verification (spec/07-host).

One function computes them all, so that they can't differ. Every kernel runs on a shape of
the closed set (model_host/engine/shapes.py), for which no row's result depends on other
rows, on the padding, or on masked keys:

- rows are padded to a bucket, at least to `linear_rows_min`;
- keys are the cache's own, zero beyond the valid ones, up to a multiple of 512;
- the query heads of a key-value head are folded into rows, padded to `query_multiple`;
- attention takes an explicit mask: `is_causal` depends on the length.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from model_host.engine.model import Layer, Model
from model_host.engine.slab_cache import SlabCache
from model_host.engine_api import CHUNK_TOKENS, Slice
from model_host.refusals import ContextTooLong


@dataclass(frozen=True, slots=True)
class _Plan:
    """The rows of one slice in the step, and the inputs of its attention."""

    cache: SlabCache
    start: int  # tokens valid before the step
    rows: slice  # its rows of the step
    count: int
    keys: int  # key bucket
    query: torch.Tensor  # [1, H_kv, R, D], R folded and padded rows
    mask: torch.Tensor  # [R, keys], 0 or -inf


@torch.inference_mode()
def step(model: Model, batch: Sequence[Slice]) -> list[torch.Tensor]:
    """Run new tokens of one or more contexts; return logits, float32 [n, V] each.

    See Engine.step.
    """
    assert all(part.ids for part in batch), "a slice has tokens"
    assert 0 < sum(len(part.ids) for part in batch) <= CHUNK_TOKENS, "a step has 1 to 512 tokens"
    assert len({id(part.cache) for part in batch}) == len(batch), "a context is in a step once"
    try:
        plans = _plan(model, batch)
        hidden = _forward(model, batch, plans)
        logits = _logits(model, batch, plans, hidden)
    except BaseException:
        for part in batch:
            part.cache.truncate(part.cache.tokens)
        raise
    for plan in plans:
        plan.cache.commit(plan.start + plan.count)
    return logits


def _plan(model: Model, batch: Sequence[Slice]) -> list[_Plan]:
    """Reserve memory and build each slice's mask and query buffer."""
    config, shapes, at, plans = model.config, model.shapes, 0, []
    for part in batch:
        assert isinstance(part.cache, SlabCache), "an engine computes in its own caches"
        start, count = part.cache.tokens, len(part.ids)
        if start + count > config.context_tokens:
            raise ContextTooLong(
                f"{start + count} tokens exceed the context of {config.context_tokens}."
            )
        part.cache.reserve(start + count)
        keys = shapes.keys(start + count)
        rows = shapes.query_rows(count, config.group)
        plans.append(
            _Plan(
                cache=part.cache,
                start=start,
                rows=slice(at, at + count),
                count=count,
                keys=keys,
                query=torch.zeros((1, config.kv_heads, rows, config.head_width), dtype=model.dtype),
                mask=causal_mask(start, count, config.group, rows, keys, model.dtype),
            )
        )
        at += count
    return plans


def causal_mask(
    start: int, count: int, group: int, rows: int, keys: int, dtype: torch.dtype
) -> torch.Tensor:
    """Return the additive mask [rows, keys]: folded row r sees the keys up to its position.

    Padding rows see the keys of the last real row, so that no row is fully masked.
    """
    positions = start + (torch.arange(rows) // group).clamp_(max=count - 1)
    hidden = torch.arange(keys) > positions[:, None]
    return torch.zeros((rows, keys), dtype=dtype).masked_fill_(hidden, float("-inf"))


def _forward(model: Model, batch: Sequence[Slice], plans: list[_Plan]) -> torch.Tensor:
    """Run all layers, writing keys and values to the caches; return hidden rows [M, W]."""
    config = model.config
    padding = model.shapes.linear_rows(plans[-1].rows.stop) - plans[-1].rows.stop
    ids = [token for part in batch for token in part.ids] + [0] * padding
    positions = [plan.start + row for plan in plans for row in range(plan.count)] + [0] * padding
    cos, sin = _rotary_rows(model, torch.tensor(positions))
    # The sum of all layers in float32 is nearer to the exact one, and takes no more time.
    hidden = functional.embedding(torch.tensor(ids), model.embedding).float()
    context = torch.zeros((len(ids), config.heads * config.head_width), dtype=model.dtype)
    for index, layer in enumerate(model.layers):
        heads = project(model, layer, hidden, cos, sin)
        for plan in plans:
            _attend(model, plan, heads, index, context)
        hidden.add_(layer.out(context))
        hidden.add_(feed_forward(model, layer, hidden))
    return hidden


def _rotary_rows(model: Model, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin [M, H + 2 H_kv, D] for the positions [M].

    For values, cos is 1 and sin is 0, so that queries, keys and values go through the same
    three kernels.
    """
    config = model.config
    rotated, width = config.heads + config.kv_heads, config.head_width
    shape = (len(positions), rotated + config.kv_heads, width)
    cos, sin = torch.ones(shape, dtype=model.dtype), torch.zeros(shape, dtype=model.dtype)
    cos[:, :rotated] = model.cos[positions][:, None]
    sin[:, :rotated] = model.sin[positions][:, None]
    return cos, sin


def rms_norm(model: Model, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Normalise rows [..., W]: in float32, rounded to the dtype, then times the weight.

    torch's rms_norm gives the same to within a rounding and takes twice as long.
    """
    wide = rows.float()
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    mean = length.square_().div_(rows.shape[-1]).add_(model.config.rms_eps)
    return wide.mul(mean.rsqrt_()).to(model.dtype).mul_(weight)


def project(
    model: Model, layer: Layer, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Return rotated queries, rotated keys and values, [M, H + 2 H_kv, D], of rows [M, W]."""
    config = model.config
    normed = rms_norm(model, hidden, layer.attn_norm)
    heads = layer.qkv(normed).view(len(hidden), -1, config.head_width)
    if layer.qk_norm is not None:
        rotated = heads[:, : len(layer.qk_norm)]
        rotated.copy_(rms_norm(model, rotated, layer.qk_norm))
    return torch.addcmul(heads * cos, heads.roll(config.head_width // 2, -1), sin)


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Attend with folded queries [1, H_kv, R, D] over keys and values [1, H_kv, K, D]."""
    return functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)


def _attend(
    model: Model, plan: _Plan, heads: torch.Tensor, index: int, context: torch.Tensor
) -> None:
    """Append one slice's keys and values to its cache, attend, and fill its context rows."""
    config, count = model.config, plan.count
    kv_heads, group, width = config.kv_heads, config.group, config.head_width
    mine = heads[plan.rows]
    stored = plan.cache.layer(index)
    fresh = mine[:, config.heads :].view(count, 2, kv_heads, width)
    stored[:, :, plan.start : plan.start + count] = fresh.permute(1, 2, 0, 3)
    folded = plan.query[0, :, : count * group].view(kv_heads, count, group, width)
    folded.copy_(mine[:, : config.heads].view(count, kv_heads, group, width).transpose(0, 1))
    seen = stored[:, None, :, : plan.keys]
    result = attend(plan.query, seen[0], seen[1], plan.mask)
    result = result[0, :, : count * group].view(kv_heads, count, group, width)
    context[plan.rows].view(count, kv_heads, group, width).copy_(result.transpose(0, 1))


def feed_forward(model: Model, layer: Layer, hidden: torch.Tensor) -> torch.Tensor:
    """Return the gated feed-forward of rows [M, W]."""
    config = model.config
    normed = rms_norm(model, hidden, layer.ffn_norm)
    both = layer.gate_up(normed)
    gate, up = both[:, : config.ffn_width], both[:, config.ffn_width :]
    return layer.down(functional.silu(gate).mul_(up))


def head(model: Model, hidden: torch.Tensor) -> torch.Tensor:
    """Return logits [M, V] in the model's dtype for rows [M, W] of a bucket's size."""
    normed = rms_norm(model, hidden, model.norm)
    return model.head(normed)


def _logits(
    model: Model, batch: Sequence[Slice], plans: list[_Plan], hidden: torch.Tensor
) -> list[torch.Tensor]:
    """Run the head on the rows asked for, padded to a bucket."""
    wanted = [min(part.logits, plan.count) for part, plan in zip(batch, plans, strict=True)]
    total = sum(wanted)
    if not total:
        return [torch.empty((0, model.config.vocab)) for _ in batch]
    rows = torch.cat(
        [hidden[plan.rows.stop - n : plan.rows.stop] for plan, n in zip(plans, wanted, strict=True)]
    )
    padding = model.shapes.linear_rows(total) - total
    logits = head(model, functional.pad(rows, (0, 0, 0, padding)))[:total].float()
    return list(torch.split(logits, wanted))
