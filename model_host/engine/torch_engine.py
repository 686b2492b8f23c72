"""The torch engine on CPU: load and step (spec/07-host)."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import torch

from model_host.engine.linear import packed_available
from model_host.engine.model import Model, build_model
from model_host.engine.model_file import ModelFile
from model_host.engine.numerics import SelfTest, numerics_class, self_test
from model_host.engine.open_model import open_model
from model_host.engine.shapes import CONTEXT_TOKENS_DEFAULT, CONTEXT_TOKENS_MIN, Shapes, candidates
from model_host.engine.slab_memory import TorchSlabMemory
from model_host.engine.step import step as run_step
from model_host.engine.weights import check_numerics, load_weights, recipe_digest
from model_host.engine_api import Logits, Slice
from model_host.kv import PAGE_LAYOUT, SLAB_TOKENS, Namespace, canonical_json
from model_host.model_config import ModelConfig
from replica.refusals import ArgumentInvalid

log = logging.getLogger(__name__)

KV_BYTES_DEFAULT = 2 << 30
SLABS_MAX = 4_096
"""Most slabs of a memory: for a small model they hold fewer bytes than it may use."""
_SLABS_BESIDE = 64
"""Slabs for tails and copies, beside those that full contexts fill."""


@dataclass(frozen=True, slots=True)
class TorchEngine:
    """An `Engine` (model_host/engine_api.py) over one GGUF file or Hugging Face folder."""

    file: ModelFile
    model: Model
    numerics: str
    numerics_class: bytes
    tested: SelfTest
    memory: TorchSlabMemory

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        numerics: str = "bf16",
        threads: int = 0,
        cache_dir: Path | None = None,
        context_tokens: int | None = None,
        kv_bytes: int = KV_BYTES_DEFAULT,
    ) -> Self:
        """Open a model, choose the fastest shapes that pass the self-test, run the canary.

        `threads` of 0 leaves the number to torch; it applies to the whole process.
        `context_tokens`, 8,192 by default, bounds the context, and with it the self-test.
        `kv_bytes` is what keys and values may use; address space is reserved for twice as much,
        since many slabs are partly filled. Without `cache_dir` the file is dequantised each
        time. Raises ArgumentInvalid before the file is read, or a subclass of ModelFileError.
        """
        if context_tokens is not None and context_tokens < CONTEXT_TOKENS_MIN:
            raise ArgumentInvalid(
                f"context_tokens: {context_tokens}; a context has {CONTEXT_TOKENS_MIN} at least"
            )
        if threads < 0:
            raise ArgumentInvalid(f"threads: {threads}; 0 for torch's choice, or more")
        if threads:
            torch.set_num_threads(threads)
        check_numerics(numerics)
        file = open_model(path)
        weights = load_weights(file, numerics, cache_dir)
        limit = min(file.config.context_tokens, context_tokens or CONTEXT_TOKENS_DEFAULT)
        model, tested = _choose(file.config, weights.tensors, candidates(limit, numerics))
        canary = numerics_class(file.config, numerics, model.shapes)
        log.info(
            "engine_loaded model=%s numerics=%s linear=%s bitwise=%s from_cache=%s",
            *(file.name, numerics, model.shapes.linear, tested.passed, weights.from_cache),
        )
        memory = TorchSlabMemory(
            model.config, model.dtype, _slabs(model.config, model.dtype, kv_bytes)
        )
        return cls(file, model, numerics, canary, tested, memory)

    @property
    def config(self) -> ModelConfig:
        """Return the model's configuration, with the context as loaded."""
        return self.model.config

    @property
    def bitwise(self) -> bool:
        """Say whether the self-test passed."""
        return self.tested.passed

    def namespace(self, salt: bytes) -> Namespace:
        """Return the namespace of pages computed here, under a salt."""
        return Namespace(
            weights_sha256=self.file.sha256,
            dequantisation=recipe_digest(),
            config=canonical_json(asdict(self.file.config)),
            numerics=self.numerics,
            kv_dtype=str(self.model.dtype).removeprefix("torch."),
            page_layout=PAGE_LAYOUT,
            shapes=canonical_json(self.model.shapes.describe()),
            numerics_class=self.numerics_class,
            salt=salt,
        )

    def step(self, batch: Sequence[Slice]) -> list[Logits]:
        """Compute the new tokens of each slice; return its logits, [n, V]. See Engine."""
        return [logits.numpy() for logits in run_step(self.model, self.memory, batch)]


def _slabs(config: ModelConfig, dtype: torch.dtype, kv_bytes: int) -> int:
    """Return the number of slabs to reserve for `kv_bytes` of keys and values."""
    position = config.layers * 2 * config.kv_heads * config.head_width * dtype.itemsize
    return min(2 * kv_bytes // (SLAB_TOKENS * position) + _SLABS_BESIDE, SLABS_MAX)


def _choose(
    config: ModelConfig, tensors: dict[str, torch.Tensor], sets: Sequence[Shapes]
) -> tuple[Model, SelfTest]:
    """Build the model with the first shapes that pass, or the safest if none does."""
    dtype = tensors["embedding"].dtype
    usable = [shapes for shapes in sets if shapes.linear == "plain" or packed_available(dtype)]
    for shapes in usable:
        model = build_model(config, tensors, shapes)
        tested = self_test(model)
        if tested.passed:
            return model, tested
        log.warning("self_test_failed linear=%s at=%s", shapes.linear, tested.failures[:8])
    return model, tested
