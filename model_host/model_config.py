"""The configuration of a dense llama model."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a dense llama model; widths in elements.

    `head_width * heads` is the query width. With `tied` the head is the embedding.
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

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.heads // self.kv_heads
