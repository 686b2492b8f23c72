"""The memory that a model needs, as far as its header tells (spec/07-host §1). Pure."""

from model_host.kv import GROUP_TOKENS, SLAB_TOKENS
from model_host.model_config import ModelConfig

_BYTES = {"q4": 2.0, "bf16": 2.0, "fp32": 4.0}
_FOUR_BITS = 0.5 + 4 / 32
"""Bytes of a weight in four bits: its nibble, and its share of scale and zero in bf16."""


def weights_bytes(config: ModelConfig, numerics: str) -> int:
    """Return about the bytes of a loaded model's weights.

    The head counts beside the embedding also where both are one matrix: the kernels have
    the head in an order of their own.
    """
    c = config
    query, kv = c.heads * c.head_width, c.kv_heads * c.head_width
    layer = (query + 2 * kv) * c.width + c.width * query + 3 * c.ffn_width * c.width
    each = _FOUR_BITS if numerics == "q4" else _BYTES[numerics]
    return int(2 * c.vocab * c.width * _BYTES[numerics] + c.layers * layer * each)


def position_bytes(config: ModelConfig, numerics: str) -> int:
    """Return the bytes of keys and values of one position over all layers."""
    width = config.layers * 2 * config.kv_heads * config.head_width
    return int(width * _BYTES[numerics])


def context_tokens_max(config: ModelConfig, numerics: str, *, limit: int, kv_bytes: int) -> int:
    """Return the tokens of the longest context that fits the model, a limit and KV memory.

    One slab of the memory is kept for copies, and memory counts by groups of 64 tokens
    (spec/08-checkpoint §5). The result may be less than 1.
    """
    groups = kv_bytes // (GROUP_TOKENS * position_bytes(config, numerics))
    held = groups * GROUP_TOKENS - SLAB_TOKENS
    return min(config.context_tokens, limit, held)


def kv_bytes_min(config: ModelConfig, numerics: str) -> int:
    """Return the least KV memory that holds a context: one group beside the slab for copies."""
    return (SLAB_TOKENS + GROUP_TOKENS) * position_bytes(config, numerics)
