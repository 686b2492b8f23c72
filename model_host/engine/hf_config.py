"""The configuration of a Hugging Face folder, and the options refused in it. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model_host.engine import rope_scaling
from model_host.engine.model_file import FAMILIES, count, number
from model_host.errors import ModelArchitectureUnknown, ModelFileInvalid, ModelTensorMissing
from model_host.model_config import ModelConfig

_WINDOWED = "sliding_attention"
_ATTENTION = ("full_attention", _WINDOWED)


def read_config(fields: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Read config.json, but for the scaling of RoPE; `shapes` are of the tensors, by GGUF name.

    Raises ModelArchitectureUnknown for options the engine lacks, ModelFileInvalid or
    ModelTensorMissing.
    """
    _check_options(fields)
    width, heads = count(fields, "hidden_size"), count(fields, "num_attention_heads")
    kv_heads = count(fields, "num_key_value_heads", heads)
    head_width = count(fields, "head_dim", width // heads)
    if head_width % 2 or heads % kv_heads:
        raise ModelArchitectureUnknown(f"{heads} heads of {head_width} over {kv_heads} can't run.")
    embedding = shapes.get("token_embd.weight")
    if embedding is None or len(embedding) != 2:
        raise ModelTensorMissing("model.embed_tokens.weight is missing or isn't a matrix.")
    options = _rope_options(fields)
    base = number(options, "rope_theta", number(fields, "rope_theta", 10_000.0))
    return ModelConfig(
        layers=count(fields, "num_hidden_layers"),
        width=width,
        ffn_width=count(fields, "intermediate_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_width=head_width,
        vocab=embedding[0],
        context_tokens=_context(fields),
        rope_base=float(base),
        rms_eps=float(number(fields, "rms_norm_eps", 1e-6)),
        tied=bool(fields.get("tie_word_embeddings")) and "output.weight" not in shapes,
        qkv_bias=fields["model_type"] == "qwen2" or "blk.0.attn_q.bias" in shapes,
        qk_norm=fields["model_type"] == "qwen3",
    )


def with_rope_scaling(config: ModelConfig, fields: Mapping[str, Any]) -> ModelConfig:
    """Apply the scaling of RoPE that config.json states.

    There are as many divisors as the width of a head says: check the tensors before.
    Raises ModelArchitectureUnknown or ModelFileInvalid.
    """
    options = _rope_options(fields)
    kind = str(options.get("rope_type") or options.get("type") or "default")
    divisors = rope_scaling.divisors(
        kind, options, head_width=config.head_width, base=config.rope_base
    )
    return replace(config, rope_divisors=divisors)


def _check_options(fields: Mapping[str, Any]) -> None:
    """Raise ModelArchitectureUnknown for an option that the engine lacks."""
    family = fields.get("model_type")
    if family not in FAMILIES:
        raise ModelArchitectureUnknown(f"The engine runs {', '.join(FAMILIES)}, not {family!r}.")
    if fields.get("hidden_act", "silu") != "silu":
        raise ModelArchitectureUnknown(f"The engine doesn't run {fields['hidden_act']!r}.")
    if method := fields.get("quantization_config"):
        name = method.get("quant_method") if isinstance(method, dict) else method
        raise ModelArchitectureUnknown(f"The engine doesn't run weights quantised by {name!r}.")


def _rope_options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of RoPE. Raises ModelArchitectureUnknown for those the engine lacks."""
    options = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    if not isinstance(options, dict) or any(isinstance(v, dict) for v in options.values()):
        raise ModelArchitectureUnknown("The engine doesn't run RoPE that differs between layers.")
    for place in (fields, options):
        if place.get("partial_rotary_factor", 1) != 1:
            raise ModelArchitectureUnknown("The engine doesn't run partial_rotary_factor.")
    return options


def _context(fields: Mapping[str, Any]) -> int:
    """Return the context's length, that of the attention window where there is one.

    In a context that the window holds, attention is the same without it.
    """
    context = count(fields, "max_position_embeddings")
    kinds = fields.get("layer_types") or ()
    if not isinstance(kinds, list | tuple):
        raise ModelFileInvalid("layer_types isn't a list.")
    for kind in kinds:
        if kind not in _ATTENTION:
            raise ModelArchitectureUnknown(f"The engine doesn't run layers of {kind!r}.")
    window = fields.get("sliding_window") is not None
    uses_window = fields.get("use_sliding_window", fields["model_type"] == "mistral")
    if _WINDOWED in kinds or (not kinds and uses_window and window):
        return min(context, count(fields, "sliding_window"))
    return context
