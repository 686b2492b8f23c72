"""A dense model in torch: the layers for the step function (spec/07-host)."""

from dataclasses import dataclass, replace

import torch

from model_host.engine.linear import Linear, make_int4, make_linear
from model_host.engine.shapes import Shapes
from model_host.model_config import ModelConfig


@dataclass(frozen=True, slots=True)
class Layer:
    """One transformer block; each linear maps [M, in] to [M, out]."""

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
    layers: tuple[Layer, ...]
    norm: torch.Tensor  # [W]
    head: Linear  # W -> V
    cos: torch.Tensor
    sin: torch.Tensor


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
            attn_norm=tensors[f"{index}.attn_norm"],
            qkv=linear(f"{index}.qkv"),
            out=linear(f"{index}.out"),
            ffn_norm=tensors[f"{index}.ffn_norm"],
            gate_up=linear(f"{index}.gate_up"),
            down=linear(f"{index}.down"),
            qk_norm=tensors.get(f"{index}.qk_norm"),
        )

    cos, sin = rotary_tables(config, dtype)
    return Model(
        config=config,
        dtype=dtype,
        shapes=shapes,
        embedding=tensors["embedding"],
        layers=tuple(layer(index) for index in range(config.layers)),
        norm=tensors["norm"],
        head=linear("head" if "head" in tensors else "embedding"),
        cos=cos,
        sin=sin,
    )
