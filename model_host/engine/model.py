"""A dense model in torch: the layers for the step function (spec/07-host)."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from model_host.engine.compute_threads import compute_threads
from model_host.engine.linear import Linear, make_int4, make_linear
from model_host.engine.shapes import QUERY_STEP_MAX, Shapes
from model_host.kv import SLAB_TOKENS
from model_host.model_config import ModelConfig


class Layer(NamedTuple):
    """One transformer block; each linear maps [M, in] to [M, out].

    The weights of norms are float32 and times sqrt(W), see `rms_norm` in layers.py.
    """

    attn_norm: torch.Tensor  # [W]
    qkv: Linear  # W -> (H + 2 H_kv) D
    out: Linear  # H D -> W
    ffn_norm: torch.Tensor  # [W]
    gate_up: Linear  # W -> 2 F
    down: Linear  # F -> W
    qk_norm: torch.Tensor | None = None  # [H + H_kv, D]


@dataclass(frozen=True, slots=True)
class Model:
    """Weights, rotary tables and the closed set of shapes they are run with.

    cos, sin: [context, D]; the first half of sin is negated, since half-split RoPE is
    x * cos + roll(x, D/2) * sin.
    """

    config: ModelConfig
    dtype: torch.dtype
    shapes: Shapes
    embedding: torch.Tensor  # [V, W]
    layers: list[Layer]
    norm: torch.Tensor  # [W]
    head: Linear  # W -> V
    cos: torch.Tensor
    sin: torch.Tensor
    masks: torch.Tensor  # see causal_masks


def rotary_tables(config: ModelConfig, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and signed sin, [context, D], computed in float64 and rounded once.

    A float64 sine may differ in the last bit between machines. The rounding to 24 or 8
    bits removes nearly all of these differences, and the canary reveals the rest.
    """
    half = config.head_width // 2
    exponents = torch.arange(half, dtype=torch.float64) / half
    frequencies = config.rope_base**-exponents
    if config.rope_divisors:
        frequencies /= torch.tensor(config.rope_divisors, dtype=torch.float64)
    angles = torch.outer(torch.arange(config.context_tokens, dtype=torch.float64), frequencies)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], -1).to(dtype), torch.cat([-sin, sin], -1).to(dtype)


def causal_masks(group: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the additive masks [R, 512] of folded query rows at the places of a slab, in order.

    Row r sees the keys up to place r // group. Padding after the last sees all.
    """
    places = torch.arange(SLAB_TOKENS * group + QUERY_STEP_MAX) // group
    hidden = torch.arange(SLAB_TOKENS) > places[:, None]
    masks = torch.zeros(hidden.shape, dtype=dtype)
    return masks.masked_fill_(hidden, float("-inf"))


def norm_weight(weight: torch.Tensor) -> torch.Tensor:
    """Return the weight [W] of a norm in float32, times sqrt(W)."""
    return weight.float() * math.sqrt(len(weight))


def build_model(config: ModelConfig, tensors: dict[str, torch.Tensor], shapes: Shapes) -> Model:
    """Assemble a model from weights named as model_host/engine/weights.py names them.

    Its context is limited to that of the shapes.
    """
    dtype = tensors["embedding"].dtype
    config = replace(config, context_tokens=min(config.context_tokens, shapes.keys_max))

    def linear(name: str) -> Linear:
        bias = tensors.get(f"{name}.bias")
        if f"{name}.nibbles" in tensors:
            return make_int4(tensors[f"{name}.nibbles"], tensors[f"{name}.scales"], bias)
        return make_linear(tensors[name], bias, shapes)

    def layer(index: int) -> Layer:
        return Layer(
            attn_norm=norm_weight(tensors[f"{index}.attn_norm"]),
            qkv=linear(f"{index}.qkv"),
            out=linear(f"{index}.out"),
            ffn_norm=norm_weight(tensors[f"{index}.ffn_norm"]),
            gate_up=linear(f"{index}.gate_up"),
            down=linear(f"{index}.down"),
            qk_norm=tensors.get(f"{index}.qk_norm"),
        )

    cos, sin = rotary_tables(config, dtype)
    head_name = "head" if "head" in tensors else "embedding"
    workers = torch.get_num_threads()
    # Packing is of one thread: the matrices are packed side by side, the largest first.
    with compute_threads(1), ThreadPoolExecutor(workers, "packing") as pool:
        head = pool.submit(linear, head_name)
        layers = list(pool.map(layer, range(config.layers)))
    return Model(
        config=config,
        dtype=dtype,
        shapes=shapes,
        embedding=tensors["embedding"],
        layers=layers,
        norm=norm_weight(tensors["norm"]),
        head=head.result(),
        cos=cos,
        sin=sin,
        masks=causal_masks(config.group, dtype),
    )
