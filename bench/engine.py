"""How fast is the engine alone: prefill, decoding, batches, beside llama.cpp and transformers?

Each figure is the median of rounds in which all measured programs take turns, so that what
else the machine does slows down all of them; ratios are of one round. llama.cpp runs the
same GGUF, transformers the same weights in bf16, where they are installed (`make
bench-peers`). Decoding starts at 128, 512 and 2,048 tokens; a batch has as many sequences,
whose tails lie side by side in memory. A table divides a decode step by operators; beside
it, the least time in which the bytes of weights, keys and values can be read.
"""

import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from bench.pages import Pages
from bench.result import Goal, arguments, report, say
from model_host.engine.torch_engine import TorchEngine
from model_host.engine.weights import DTYPES
from model_host.engine_api import CHUNK_TOKENS, Slice
from model_host.io.fetch import cache_dir, resolve
from model_host.kv import SLAB_TOKENS

PREFILLS = (128, 512, 2048, 4096)
DECODES = (128, 512, 2048)
BATCHES = ((4, 128), (16, 128), (32, 128), (4, 500), (16, 500), (32, 500))
ROUNDS = 7
STEPS = 10  # of one round; one more is run first
CONTEXT = 8192
TAIL_SLOTS = 32

Figures = dict[str, float]


def token_ids(count: int, seed: int) -> list[int]:
    """Return token ids of plain words, equal for equal seeds."""
    return [1000 + (7919 * (i + seed)) % 40_000 for i in range(count)]


class Ours:
    """The engine under one numerics, with sequences in a memory of its own."""

    def __init__(self, path: Path, numerics: str) -> None:
        self.engine = TorchEngine.load(
            path, numerics=numerics, cache_dir=cache_dir(), context_tokens=CONTEXT
        )

    def sequences(self, count: int, tokens: int) -> list[Pages]:
        """Return sequences prefilled alike: tails in the first slabs, full slabs in order."""
        full, first = tokens // SLAB_TOKENS, TAIL_SLOTS
        made = []
        for tail in range(count):
            made.append(Pages([*range(first + full * tail, first + full * (tail + 1)), tail]))
            self.prefill(token_ids(tokens, tail), made[-1])
        return made

    def prefill(self, ids: Sequence[int], pages: Pages) -> None:
        """Compute all tokens, with the logits of the last."""
        for at in range(0, len(ids), CHUNK_TOKENS):
            part = ids[at : at + CHUNK_TOKENS]
            is_last = at + len(part) == len(ids)
            self.engine.step([Slice(pages, part, logits=int(is_last))])
            pages.tokens += len(part)

    def decode(self, sequences: Sequence[Pages]) -> float:
        """Return the seconds of one step, over a few steps; the sequences are as before."""
        for step in range(STEPS + 1):
            if step == 1:
                began = time.perf_counter()
            self.engine.step([Slice(pages, (1000 + step,)) for pages in sequences])
            for pages in sequences:
                pages.tokens += 1
        seconds = (time.perf_counter() - began) / STEPS
        for pages in sequences:
            pages.tokens -= STEPS + 1
        return seconds

    def prefill_seconds(self, ids: list[int]) -> float:
        """Return the seconds of a prefill from nothing."""
        pages = Pages(list(range(-(-len(ids) // SLAB_TOKENS))))
        began = time.perf_counter()
        self.prefill(ids, pages)
        return time.perf_counter() - began

    def clear(self) -> None:
        """Empty the memory."""
        for slab in range(self.engine.memory.slabs):
            self.engine.memory.clear(slab)


class LlamaCpp:
    """llama.cpp on the same file, with as many threads as torch."""

    def __init__(self, path: Path) -> None:
        from llama_cpp import Llama

        threads = torch.get_num_threads()
        self._model = Llama(
            str(path), n_ctx=CONTEXT, n_threads=threads, n_threads_batch=threads, verbose=False
        )

    def prefill_seconds(self, ids: list[int]) -> float:
        """Return the seconds of a prefill from nothing."""
        self._model.reset()
        began = time.perf_counter()
        self._model.eval(ids)
        return time.perf_counter() - began

    def decode(self, tokens: int) -> float:
        """Return the seconds of one token, over a few tokens; the context is as before."""
        self._model.n_tokens = tokens
        for step in range(STEPS + 1):
            if step == 1:
                began = time.perf_counter()
            self._model.eval([1000 + step])
        return (time.perf_counter() - began) / STEPS


def transformers_prefill(path: Path) -> Callable[[list[int]], float]:
    """Return a timed prefill by transformers in bf16."""
    from bench.transformers_peer import load

    model = load(path, torch.bfloat16)

    def prefill(ids: list[int]) -> float:
        began = time.perf_counter()
        with torch.inference_mode():
            model(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
        return time.perf_counter() - began

    return prefill


def in_turns(programs: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Run all programs in each round; return the seconds of each, round by round."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(ROUNDS):
        for name, run in programs.items():
            seconds[name].append(run())
    return seconds


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of the ratios, round by round."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


@dataclass
class Bench:
    """All measured programs; peers are missing where they are not installed."""

    ours: dict[str, Ours]
    llama: LlamaCpp | None
    transformers: Callable[[list[int]], float] | None

    def prefills(self) -> Iterator[tuple[str, dict[str, list[float]]]]:
        """Measure prefills, alternating."""
        for tokens in PREFILLS:
            ids = token_ids(tokens, tokens)
            programs: dict[str, Callable[[], float]] = {
                name: partial(ours.prefill_seconds, ids) for name, ours in self.ours.items()
            }
            if self.llama is not None:
                programs["llama.cpp"] = partial(self.llama.prefill_seconds, ids)
            if self.transformers is not None:
                programs["transformers"] = partial(self.transformers, ids)
            yield f"prefill {tokens}", in_turns(programs)

    def decodes(self) -> Iterator[tuple[str, dict[str, list[float]]]]:
        """Measure the decoding of one sequence, alternating, and of batches."""
        for count, tokens in (*((1, tokens) for tokens in DECODES), *BATCHES):
            programs: dict[str, Callable[[], float]] = {}
            for name, ours in self.ours.items():
                ours.clear()
                sequences = ours.sequences(count, tokens)
                programs[name] = partial(ours.decode, sequences)
            if self.llama is not None:
                self.llama.prefill_seconds(token_ids(tokens, 0))
                programs["llama.cpp"] = partial(self.llama.decode, tokens)
            yield f"decode {count} at {tokens}", in_turns(programs)


def operators(ours: Ours, tokens: int) -> Figures:
    """Return milliseconds of one decode step by operator, under torch's profiler."""
    ours.clear()
    sequences = ours.sequences(1, tokens)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        ours.decode(sequences)
    table = {
        event.key: event.self_cpu_time_total / 1e3 / (STEPS + 1) for event in profile.key_averages()
    }
    return {key: ms for key, ms in sorted(table.items(), key=lambda item: -item[1]) if ms > 0.05}


def floor_ms(ours: Ours, tokens: int) -> Figures:
    """Return the least milliseconds in which memory gives the bytes that one step reads."""
    source = torch.ones(1 << 28, dtype=torch.uint8)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - began)
    per_byte = statistics.median(seconds) / (2 * len(source))
    config = ours.engine.config
    query, kv = config.heads * config.head_width, 2 * config.kv_heads * config.head_width
    weights = config.width * (2 * query + kv + 3 * config.ffn_width) * config.layers
    bits = {"q4": 5, "bf16": 16, "fp32": 32}[ours.engine.numerics]
    head = config.vocab * config.width * ours.engine.model.dtype.itemsize
    return {
        "bandwidth_gb_per_s": 1e-9 / per_byte,
        "layers": weights * bits / 8 * per_byte * 1e3,
        "head": head * per_byte * 1e3,
        "keys_values": tokens * ours.engine.memory.bytes_per_token * per_byte * 1e3,
    }


def goals(figures: dict[str, dict[str, list[float]]]) -> list[Goal]:
    """Return the goals that the installed peers and the available numerics allow."""
    found: list[Goal] = []

    def compare(case: str, name: str, peer: str, bar: float, *, at_least: bool) -> None:
        times = figures[case]
        if name in times and peer in times:
            pair = (times[peer], times[name]) if at_least else (times[name], times[peer])
            how = f"{peer} / {name}" if at_least else f"{name} / {peer}"
            found.append(Goal(f"{case}: {how}", median_ratio(*pair), bar, at_least))

    for tokens, bar in zip(DECODES, (1.2, 1.15, 1.15), strict=True):
        compare(f"decode 1 at {tokens}", "q4", "llama.cpp", bar, at_least=False)
    for tokens, bar in ((128, 3.5), (500, 2.8)):
        # Sixteen sequences a step against one: tokens per second together. A host for many
        # runs bf16, one for a person q4 (docs/models.md).
        times = figures[f"decode 16 at {tokens}"]
        for numerics in ("q4", "bf16"):
            if numerics in times and "llama.cpp" in times:
                value = 16 * median_ratio(times["llama.cpp"], times[numerics])
                name = f"decode 16 at {tokens}: tok/s of {numerics} / llama.cpp's of one"
                found.append(Goal(name, value, bar, at_least=True))
    for tokens in PREFILLS:
        case = f"prefill {tokens}"
        compare(case, "q4", "llama.cpp", 2.0, at_least=True)
        compare(case, "bf16", "llama.cpp", 3.0, at_least=True)
        compare(case, "bf16", "transformers", 1.0, at_least=True)
    return found


def main() -> int:
    """Measure and print the results."""
    flags = arguments(__doc__ or "")
    path = resolve("SmolLM2-135M-Instruct")
    torch.set_num_threads(os.cpu_count() or 1)
    bench = Bench(
        {name: Ours(path, name) for name in ("q4", "bf16") if name in DTYPES},
        LlamaCpp(path) if importlib.util.find_spec("llama_cpp") else None,
        transformers_prefill(path) if importlib.util.find_spec("transformers") else None,
    )
    figures: dict[str, dict[str, list[float]]] = {}
    for case, seconds in (*bench.prefills(), *bench.decodes()):
        figures[case] = seconds
        say(
            f"{case}: { ({k: f'{statistics.median(v) * 1e3:.1f} ms' for k, v in seconds.items()}) }"
        )
    raw: dict[str, object] = {
        "ms": {
            case: {name: round(statistics.median(s) * 1e3, 2) for name, s in seconds.items()}
            for case, seconds in figures.items()
        },
        "operators_ms": {
            name: {tokens: operators(ours, tokens) for tokens in DECODES}
            for name, ours in bench.ours.items()
        },
        "floor_ms": {
            name: {tokens: floor_ms(ours, tokens) for tokens in DECODES}
            for name, ours in bench.ours.items()
        },
        "self_test_s": {name: ours.engine.tested.seconds for name, ours in bench.ours.items()},
    }
    return report("engine", goals(figures), raw, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
