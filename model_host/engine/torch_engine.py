"""The torch engine on CPU: load, prefill, decode, score (spec/07-host)."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import torch

from model_host.engine.gguf_file import ModelFile, open_model_file
from model_host.engine.model import Model, build_model, packed_linear_available
from model_host.engine.numerics import SelfTest, numerics_class, self_test
from model_host.engine.shapes import (
    CHUNK_TOKENS,
    CONTEXT_TOKENS_DEFAULT,
    CONTEXT_TOKENS_MIN,
    candidates,
)
from model_host.engine.slab_cache import SlabCache
from model_host.engine.step import Slice, step
from model_host.engine.weights import DTYPES, load_weights, recipe_digest
from model_host.engine_api import Logits, Progress, Scored
from model_host.errors import PrefillCancelled
from model_host.kv import PAGE_LAYOUT, KVCache, Namespace, canonical_json
from model_host.model_config import ModelConfig
from model_host.refusals import ContextTooLong
from replica.refusals import ArgumentInvalid

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TorchEngine:
    """An `Engine` (model_host/engine_api.py) over one GGUF file of the llama architecture."""

    file: ModelFile
    model: Model
    dtype: str
    numerics_class: bytes
    tested: SelfTest

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        dtype: str = "bf16",
        threads: int = 0,
        cache_dir: Path | None = None,
        context_tokens: int | None = None,
    ) -> Self:
        """Open a model, choose the fastest shapes that pass the self-test, run the canary.

        `threads` of 0 leaves torch's choice; the number is torch's, so the process's.
        `context_tokens`, 8,192 if unset, bounds the context, and with it the self-test.
        Without `cache_dir` the file is dequantised anew. Raises ArgumentInvalid before
        anything is read, or a subclass of ModelFileError.
        """
        if context_tokens is not None and context_tokens < CONTEXT_TOKENS_MIN:
            raise ArgumentInvalid(
                f"context_tokens: {context_tokens}; a context has {CONTEXT_TOKENS_MIN} at least"
            )
        if threads < 0:
            raise ArgumentInvalid(f"threads: {threads}; 0 for torch's choice, or more")
        if threads:
            torch.set_num_threads(threads)
        file = open_model_file(path)
        weights = load_weights(file, dtype, cache_dir)
        limit = min(file.config.context_tokens, context_tokens or CONTEXT_TOKENS_DEFAULT)
        model, tested = _choose(file.config, weights.tensors, limit)
        canary = numerics_class(file.config, DTYPES[dtype], model.shapes)
        log.info(
            "engine_loaded model=%s dtype=%s linear=%s bitwise=%s from_cache=%s",
            *(file.name, dtype, model.shapes.linear, tested.passed, weights.from_cache),
        )
        return cls(file, model, dtype, canary, tested)

    @property
    def config(self) -> ModelConfig:
        """Return the model's configuration, its context as loaded."""
        return self.model.config

    @property
    def bitwise(self) -> bool:
        """Say whether the self-test passed."""
        return self.tested.passed

    def namespace(self, salt: bytes) -> Namespace:
        """Return what pages computed here are valid for, under a salt."""
        return Namespace(
            weights_sha256=self.file.sha256,
            dequantisation=recipe_digest(),
            config=canonical_json(asdict(self.file.config)),
            compute_dtype=self.dtype,
            kv_dtype=self.dtype,
            page_layout=PAGE_LAYOUT,
            shapes=canonical_json(self.model.shapes.describe()),
            numerics_class=self.numerics_class,
            salt=salt,
        )

    def new_cache(self, claim: Callable[[int], None] | None = None) -> KVCache:
        """Return an empty cache; `claim(bytes)` is asked before each growth."""
        return SlabCache(self.config, self.model.dtype, claim)

    def prefill(
        self,
        cache: KVCache,
        ids: Sequence[int],
        on_progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Logits:
        """Append `ids` in chunks; return the logits after the last, [V]. See Engine."""
        self._check_room(cache, ids)
        logits: torch.Tensor | None = None
        for at in range(0, len(ids), CHUNK_TOKENS):
            if cancelled is not None and cancelled():
                raise PrefillCancelled
            part = ids[at : at + CHUNK_TOKENS]
            is_last = at + len(part) == len(ids)
            (logits,) = step(self.model, [Slice(cache, part, logits=int(is_last))])
            if on_progress is not None:
                on_progress(at + len(part), len(ids))
        assert logits is not None, "at least one token is always left to compute"
        return logits[-1].numpy()

    def decode(self, cache: KVCache, token_id: int) -> Logits:
        """Append one token; return the logits after it, [V]. See Engine."""
        return self.decode_batch([(cache, token_id)])[0]

    def decode_batch(self, tokens: Sequence[tuple[KVCache, int]]) -> list[Logits]:
        """Append one token to each of several caches in one step. See Engine."""
        batch = [Slice(cache, (token_id,)) for cache, token_id in tokens]
        return [logits[-1].numpy() for logits in step(self.model, batch)]

    def score(
        self,
        cache: KVCache,
        ids: Sequence[int],
        on_scored: Callable[[Scored], None],
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        """Append `ids` and hand out the logits after every one of them. See Engine."""
        self._check_room(cache, ids)
        for at in range(0, len(ids), CHUNK_TOKENS):
            if cancelled is not None and cancelled():
                raise PrefillCancelled
            start, part = cache.tokens, ids[at : at + CHUNK_TOKENS]
            (logits,) = step(self.model, [Slice(cache, part, logits=len(part))])
            on_scored(Scored(start, logits.numpy()))

    def _check_room(self, cache: KVCache, ids: Sequence[int]) -> None:
        """Refuse before any work what can't fit, and grow once instead of per chunk."""
        total = cache.tokens + len(ids)
        if total > self.config.context_tokens:
            raise ContextTooLong(
                f"{total} tokens exceed the context of {self.config.context_tokens}."
            )
        cache.reserve(total)


def _choose(
    config: ModelConfig, tensors: dict[str, torch.Tensor], context_tokens: int
) -> tuple[Model, SelfTest]:
    """Build the model with the first shapes that pass; with the safest if none does."""
    dtype = tensors["embedding"].dtype
    usable = [
        shapes
        for shapes in candidates(context_tokens)
        if shapes.linear == "plain" or packed_linear_available(dtype)
    ]
    for shapes in usable:
        model = build_model(config, tensors, shapes)
        tested = self_test(model)
        if tested.passed:
            return model, tested
        log.warning("self_test_failed linear=%s at=%s", shapes.linear, tested.failures[:8])
    return model, tested
