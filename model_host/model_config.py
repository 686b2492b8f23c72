"""The configuration of a dense model of the llama, mistral, qwen2 or qwen3 family."""

from dataclasses import dataclass

CONTEXT_TOKENS_MIN = 2
"""One token to read and one to write."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a dense model; widths in elements.

    `head_width * heads` is the query width. With `tied` the head is the embedding. With
    `qk_norm` each query and key head is normalised before it is rotated. `rope_divisors`
    divide the RoPE frequencies one by one; none where they are as the base gives them.
    """

    layers: int
    width: int
    ffn_width: int
    heads: int
    kv_heads: int
    head_width: int
    vocab: int
    context_tokens: int
    rope_base: float
    rms_eps: float
    tied: bool
    qkv_bias: bool = False
    qk_norm: bool = False
    rope_divisors: tuple[float, ...] = ()

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.heads // self.kv_heads
