"""The torch engine on CPU: load and step (spec/07-host)."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

import torch

from model_host.engine.any_format import open_model
from model_host.engine.compute_threads import (
    THREADS_MAX,
    StepThreads,
    process_threads,
    set_threads,
)
from model_host.engine.kept_verdicts import KeptVerdicts, Verdict
from model_host.engine.linear import is_available
from model_host.engine.model import Model, build_model
from model_host.engine.model_file import ModelFile
from model_host.engine.numerics import (
    SelfTest,
    code_digest,
    machine_description,
    numerics_class,
    self_test,
    threads_agree,
    verdict_key,
)
from model_host.engine.shapes import CONTEXT_TOKENS_DEFAULT, Shapes, candidates
from model_host.engine.slab_memory import TorchSlabMemory
from model_host.engine.step import step as run_step
from model_host.engine.weights import Weights, check_numerics, load_weights, recipe_digest
from model_host.engine.weights_cache import BYTES_MAX_DEFAULT, InUse, WeightsCache
from model_host.engine_api import Logits, Slice
from model_host.kv import PAGE_LAYOUT, SLAB_TOKENS, Namespace, canonical_json
from model_host.model_config import CONTEXT_TOKENS_MIN, ModelConfig
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
    threads: StepThreads
    in_use: InUse | None = None
    """Keeps the weights in the cache for as long as the engine exists."""

    @classmethod
    def load(
        cls,
        model: Path | str | ModelFile,
        *,
        numerics: str = "bf16",
        threads: int = 0,
        cache_dir: Path | None = None,
        context_tokens: int | None = None,
        kv_bytes: int = KV_BYTES_DEFAULT,
        cache_bytes: int = BYTES_MAX_DEFAULT,
    ) -> Self:
        """Open a model, choose the fastest shapes that pass the self-test, run the canary.

        `threads` of 0 leaves the number to torch; it applies to the whole process.
        `context_tokens`, 8,192 by default, bounds the context, and with it the self-test.
        `kv_bytes` is what keys and values may use; address space is reserved for twice as much,
        since many slabs are partly filled. Without `cache_dir` the file is dequantised, and the
        self-test run, each time; with it `cache_bytes` bounds the converted weights kept there.
        Raises ArgumentInvalid before the file is read, or a subclass of ModelFileError.
        """
        if context_tokens is not None and context_tokens < CONTEXT_TOKENS_MIN:
            raise ArgumentInvalid(
                f"context_tokens: {context_tokens}; a context has {CONTEXT_TOKENS_MIN} at least"
            )
        if not 0 <= threads <= THREADS_MAX:
            most = f"0 for torch's choice, or 1 to {THREADS_MAX}"
            raise ArgumentInvalid(f"threads: {threads}; {most}")
        set_threads(threads or process_threads())
        check_numerics(numerics)
        file = model if isinstance(model, ModelFile) else open_model(model)
        cache = WeightsCache(cache_dir, cache_bytes) if cache_dir is not None else None
        weights = load_weights(file, numerics, cache)
        limit = min(file.config.context_tokens, context_tokens or CONTEXT_TOKENS_DEFAULT)
        kept = KeptVerdicts(cache_dir) if cache_dir is not None else None
        built, tested, canary = _choose(file, weights, candidates(limit, numerics), numerics, kept)
        log.info(
            "engine loaded",
            extra={
                "model": file.name,
                "numerics": numerics,
                "linear": built.shapes.linear,
                "bitwise": tested.passed,
                "threads_agree": tested.threads_agree,
                "from_cache": weights.from_cache,
                "verdict_kept": tested.was_kept,
            },
        )
        memory = TorchSlabMemory(
            built.config, built.dtype, _slabs(built.config, built.dtype, kv_bytes)
        )
        chosen = StepThreads(torch.get_num_threads(), may_vary=tested.threads_agree)
        return cls(file, built, numerics, canary, tested, memory, chosen, weights.in_use)

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
        rows = sum(len(part.ids) for part in batch)
        with self.threads.computing(rows):
            return [logits.numpy() for logits in run_step(self.model, self.memory, batch)]


def _slabs(config: ModelConfig, dtype: torch.dtype, kv_bytes: int) -> int:
    """Return the number of slabs to reserve for `kv_bytes` of keys and values."""
    position = config.layers * 2 * config.kv_heads * config.head_width * dtype.itemsize
    return min(2 * kv_bytes // (SLAB_TOKENS * position) + _SLABS_BESIDE, SLABS_MAX)


def _choose(
    file: ModelFile,
    weights: Weights,
    sets: Sequence[Shapes],
    numerics: str,
    kept: KeptVerdicts | None,
) -> tuple[Model, SelfTest, bytes]:
    """Build the model with the first shapes that pass, or the safest if none does.

    Returns the model, the result of the self-test, and the numerics class.
    """
    dtype = weights.tensors["embedding"].dtype
    usable = [shapes for shapes in sets if is_available(shapes.linear, dtype)]
    for shapes in usable:
        model = build_model(file.config, weights.tensors, shapes)
        canary = numerics_class(file.config, numerics, shapes)
        tested = _test(model, file, numerics, canary, kept)
        if tested.passed:
            return model, tested, canary
        detail = ", ".join(tested.failures[:8])
        log.warning("self-test failed", extra={"linear": shapes.linear, "detail": detail})
    return model, tested, canary


def _test(
    model: Model, file: ModelFile, numerics: str, canary: bytes, kept: KeptVerdicts | None
) -> SelfTest:
    """Return the kept result of the self-test if the canary is that of its class, else run it."""
    if kept is None:
        return _tested(model, file, numerics, canary)
    key = verdict_key(
        machine_description(),
        file.config,
        numerics,
        model.shapes,
        weights=file.sha256,
        code=code_digest(),
    )
    verdict = kept.read(key)
    if verdict is not None:
        if verdict.numerics_class == canary:
            return verdict.tested
        log.warning("self-test again", extra={"detail": "The canary is of another numerics class."})
    tested = _tested(model, file, numerics, canary)
    kept.write(key, Verdict(tested, canary))
    return tested


def _tested(model: Model, file: ModelFile, numerics: str, canary: bytes) -> SelfTest:
    agree = threads_agree(file.config, numerics, model.shapes, canary)
    return replace(self_test(model), threads_agree=agree)
