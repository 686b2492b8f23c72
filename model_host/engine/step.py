"""The one step function: prefill chunks, decode and verification (spec/07-host §5).

One function computes them all, so that they can't differ. Every kernel runs on a shape of
the closed set (model_host/engine/shapes.py), for which no row's result depends on other
rows, on the padding, or on masked keys. The layers are compiled to one TorchScript function:
it calls the same kernels without Python between them, and without the interpreter's lock.
"""

import logging
import warnings
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

from model_host.engine.attention import (
    Attention,
    Rows,
    attend_rows,
    plan_attention,
    write_rows,
)
from model_host.engine.attention_plan import Run, runs_of
from model_host.engine.layers import Residual, feed_forward, head, project, rotary_rows
from model_host.engine.linear import multiply
from model_host.engine.model import Layer, Model
from model_host.engine.slab_memory import TorchSlabMemory
from model_host.engine_api import CHUNK_TOKENS, Slice
from model_host.kv import SLAB_TOKENS
from model_host.refusals import ContextTooLong

log = logging.getLogger(__name__)


@torch.inference_mode()
def step(model: Model, memory: TorchSlabMemory, batch: Sequence[Slice]) -> list[torch.Tensor]:
    """Compute the new positions of one or more sequences; return logits, float32 [n, V] each.

    See Engine.step.
    """
    _check(model, batch)
    order = sorted(range(len(batch)), key=lambda index: _place(batch[index]))
    runs: list[Run] = []
    starts, row = [0] * len(batch), 0
    for index in order:
        part, starts[index] = batch[index], row
        runs += runs_of(part.pages, row, len(part.ids))
        row += len(part.ids)
    written = [run.slab for run in runs]
    assert len(set(written)) == len(written), "no slab that is written belongs to two sequences"
    for run in runs:
        memory.wrote(run.slab, run.offset + run.count)
    hidden = _forward(model, memory, [batch[index] for index in order], runs)
    return _logits(model, batch, starts, hidden)


def _check(model: Model, batch: Sequence[Slice]) -> None:
    """Check the counts of a batch. Raises ContextTooLong."""
    assert all(part.ids for part in batch), "a slice has tokens"
    assert 0 < sum(len(part.ids) for part in batch) <= CHUNK_TOKENS, "a step has 1 to 512 tokens"
    for part in batch:
        total = part.pages.tokens + len(part.ids)
        if total > model.config.context_tokens:
            raise ContextTooLong(
                f"{total} tokens exceed the context of {model.config.context_tokens}."
            )
        assert total <= len(part.pages.slabs) * SLAB_TOKENS, "the caller reserves slabs"


def _place(part: Slice) -> tuple[int, int]:
    """Return the sort key of a slice: equal counts side by side, in the order of their slabs.

    The order changes no bit. It lets one attention call serve many sequences.
    """
    return len(part.ids), part.pages.slabs[part.pages.tokens // SLAB_TOKENS]


def _forward(
    model: Model, memory: TorchSlabMemory, batch: Sequence[Slice], runs: Sequence[Run]
) -> torch.Tensor:
    """Run all layers, writing keys and values to the memory; return the rows of the residual."""
    config, device = model.config, memory.pool.device
    ids = [token for part in batch for token in part.ids]
    positions = [part.pages.tokens + row for part in batch for row in range(len(part.ids))]
    padding = [0] * (model.shapes.linear_rows(len(ids)) - len(ids))
    embedded = functional.embedding(torch.tensor(ids + padding, device=device), model.embedding)
    hidden = Residual.make(model, embedded)
    rotary = rotary_rows(model, torch.tensor(positions + padding, device=device))
    rows = Rows.make(config, model.shapes, len(embedded), model.embedding)
    attention = plan_attention(config, model.shapes, model.masks, memory, runs, rows)
    _compiled(model.layers, hidden, rotary, rows, attention, config.rms_eps)
    return hidden.rows


def _run_layers(
    layers: list[Layer],
    hidden: Residual,
    rotary: tuple[torch.Tensor, torch.Tensor],
    rows: Rows,
    attention: Attention,
    eps: float,
) -> None:
    for index, layer in enumerate(layers):
        project(layer, hidden, rotary, rows.heads, eps)
        write_rows(attention, index)
        attend_rows(attention, index)
        hidden.rows.add_(multiply(layer.out, rows.context))
        hidden.rows.add_(feed_forward(layer, hidden, rows.heads.dtype))


RunLayers = Callable[
    [list[Layer], Residual, tuple[torch.Tensor, torch.Tensor], Rows, Attention, float], None
]


def compiled(layers: RunLayers) -> RunLayers:
    """Return the layers as TorchScript, or as they are where this torch can't compile them.

    A torch without oneDNN has not all operators, as on macOS, and TorchScript is not promised
    for Python 3.14. The bits are the same in both ways.
    """
    with warnings.catch_warnings():
        # Deprecated in favour of compilers that need gcc and make kernels of their own (D494).
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            script: RunLayers = torch.jit.script(layers)
        except Exception as error:  # noqa: BLE001  # whatever it lacks, Python runs them
            log.warning("layers not compiled", extra={"detail": str(error).strip()[:200]})
            return layers
        return script


_compiled = compiled(_run_layers)


def _logits(
    model: Model, batch: Sequence[Slice], starts: Sequence[int], hidden: torch.Tensor
) -> list[torch.Tensor]:
    """Run the head on the rows asked for, in blocks padded to a bucket."""
    counts = [len(part.wanted) for part in batch]
    total = sum(counts)
    rows = torch.cat(
        [_rows(hidden, start, part.wanted) for start, part in zip(starts, batch, strict=True)]
    )
    logits, at = torch.empty((total, model.config.vocab)), 0
    for real, padded in model.shapes.head_sizes(total):
        block = functional.pad(rows[at : at + real], (0, 0, 0, padded - real))
        logits[at : at + real] = head(model, Residual.make(model, block))[:real]
        at += real
    return list(torch.split(logits, counts))


def _rows(hidden: torch.Tensor, start: int, wanted: Sequence[int]) -> torch.Tensor:
    """Return the rows wanted of a slice whose first row is `start`."""
    if isinstance(wanted, range) and wanted.step == 1:
        return hidden[start + wanted.start : start + wanted.stop]
    return hidden[torch.tensor(wanted, dtype=torch.long, device=hidden.device) + start]
