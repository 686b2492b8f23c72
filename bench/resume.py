"""How soon does the first token come after a restart, restored against computed again?

A warm host (model loaded, self-test done) whose KV memory is empty gets a new
turn of at most 16 tokens on 512, 2,048 and 4,096 tokens of context: once with
the checkpoint on disk, once without. Beside it in the same run: what restoring
costs at least (read + BLAKE3 + copy), prefill by transformers in bf16, and
llama.cpp's state load, where those are installed (`make bench-peers`).
"""

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from blake3 import blake3

from bench import jobs
from bench.engine import token_ids, transformers_prefill
from bench.result import Goal, arguments, report, say
from model_host.engine.torch_engine import TorchEngine
from model_host.io.fetch import cache_dir, resolve
from model_host.kv import SLAB_TOKENS

SIZES = (512, 2048, 4096)
NEW_TOKENS = 16
ROUNDS = 5


def first_token(engine: TorchEngine, folder: Path, conversation: bytes, ids: list[int]) -> float:
    """Return the seconds from a restart to the first new token."""
    with jobs.host(engine, folder) as host:
        job = host.job(ids, 1, conversation=conversation)
        return host.run(job)[job][0]


def process_ready_seconds(folder: Path) -> float:
    """Return the time from the start of a host's process to its ready line."""
    command = [sys.executable, "-m", "model_host", "serve", "--data-dir", str(folder)]
    began = time.perf_counter()
    with subprocess.Popen(
        [*command, "--hub", "127.0.0.1:1"],  # no hub listens there: a host is ready without its hub
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        if not process.stdout.readline().startswith("host "):
            raise RuntimeError("the host ended before it was ready")
        seconds = time.perf_counter() - began
        process.terminate()
    return seconds


def ours(engine: TorchEngine, folder: Path) -> dict[int, dict[str, float]]:
    """Measure restored and computed first tokens, alternating."""
    figures: dict[int, dict[str, float]] = {}
    for size in SIZES:
        conversation, bare = (number.to_bytes(32, "little") for number in (size, size + 1))
        context = token_ids(size, size)
        new = context + token_ids(NEW_TOKENS, size + 1)
        with jobs.host(engine, folder) as host:
            job = host.job(context, 1, conversation=conversation)
            host.run(job)
            host.save(job)
        restored, computed, floor, restore = [], [], [], []
        for _ in range(ROUNDS):
            restored.append(first_token(engine, folder, conversation, new))
            computed.append(first_token(engine, folder, bare, new))
            restore.append(restore_seconds(engine, folder, conversation, new))
            floor.append(floor_seconds(engine, folder, conversation))
        ratios = [c / r for c, r in zip(computed, restored, strict=True)]
        figures[size] = {
            "ttft_restored_s": statistics.median(restored),
            "ttft_reprefill_s": statistics.median(computed),
            "ratio": statistics.median(ratios),
            "restore_io_s": statistics.median(restore),
            "read_blake3_copy_s": statistics.median(floor),
            "io_ratio": statistics.median(a / b for a, b in zip(restore, floor, strict=True)),
            "prefill_tok_per_s": len(new) / statistics.median(computed),
        }
        say(f"{size} tokens: {figures[size]}")
    return figures


def restore_seconds(
    engine: TorchEngine, folder: Path, conversation: bytes, ids: list[int]
) -> float:
    """Return the seconds of a restore, verification included."""
    with jobs.host(engine, folder) as host:
        namespace = engine.namespace(jobs.OWNER).digest
        began = time.perf_counter()
        stored = host.pages.find(conversation, namespace, ids)
        sequence = host.pool.open(ids, namespace, conversation)
        with host.pool.restoring(sequence, ids[: stored.tokens]) as staging:
            host.pages.load(stored, staging)
        seconds = time.perf_counter() - began
        host.pool.close(sequence)
    return seconds


def floor_seconds(engine: TorchEngine, folder: Path, conversation: bytes) -> float:
    """Return the seconds to read, hash and copy the same bytes without checks."""
    with jobs.host(engine, folder) as host:
        pages, memory = host.pages._files.folder(conversation), engine.memory
        manifest = host.pages.manifests(conversation)[0]
        handles = {g.file: os.open(pages / g.file, os.O_RDONLY) for g in manifest.pieces}
        at = 0
        began = time.perf_counter()
        for group in manifest.pieces:
            data = os.pread(handles[group.file], group.length, group.offset)
            blake3(data).digest()
            slab, start = divmod(at, SLAB_TOKENS)
            tokens = group.length // memory.bytes_per_token
            memory.write(slab, start, start + tokens, np.frombuffer(data, np.uint8).copy())
            at += tokens
        seconds = time.perf_counter() - began
        for handle in handles.values():
            os.close(handle)
    return seconds


def peer_prefill(engine: TorchEngine, path: Path, folder: str) -> dict[int, dict[str, float]]:
    """Prefill with both, alternating; return tokens per second and the ratio."""
    if importlib.util.find_spec("transformers") is None:
        return {}
    theirs = transformers_prefill(path)
    figures: dict[int, dict[str, float]] = {}
    for size in SIZES:
        ids = token_ids(size, size)
        own, other = [], []
        for _ in range(ROUNDS):
            own.append(first_token(engine, Path(folder), bytes(32), ids))
            other.append(theirs(ids))
        figures[size] = {
            "ours_tok_per_s": size / statistics.median(own),
            "transformers_tok_per_s": size / statistics.median(other),
            "ratio": statistics.median(t / o for o, t in zip(own, other, strict=True)),
        }
        say(f"prefill of {size}: {figures[size]}")
    return figures


def llama_cpp(path: Path, sizes: Sequence[int] = SIZES) -> dict[int, dict[str, float]]:
    """Return llama.cpp's save and load seconds on the same file; empty if not installed."""
    if importlib.util.find_spec("llama_cpp") is None:
        return {}
    from llama_cpp import Llama

    figures: dict[int, dict[str, float]] = {}
    model = Llama(str(path), n_ctx=8192, n_threads=os.cpu_count(), verbose=False)
    for size in sizes:
        model.reset()
        began = time.perf_counter()
        model.eval(token_ids(size, size))
        prefill = time.perf_counter() - began
        began = time.perf_counter()
        state = model.save_state()
        save = time.perf_counter() - began
        began = time.perf_counter()
        model.load_state(state)
        load = time.perf_counter() - began
        figures[size] = {"prefill_s": prefill, "save_s": save, "load_s": load}
        say(f"llama.cpp, {size}: {figures[size]}")
    return figures


def main() -> int:
    """Measure and print the results."""
    flags = arguments(__doc__ or "")
    path = resolve("SmolLM2-135M-Instruct")
    with tempfile.TemporaryDirectory() as name:
        ready_s = process_ready_seconds(Path(name))
    engine = TorchEngine.load(path, numerics="bf16", cache_dir=cache_dir())
    say(f"ready {ready_s:.1f} s after process start; self-test {engine.tested.seconds:.1f} s")
    with tempfile.TemporaryDirectory() as name:
        figures = ours(engine, Path(name))
    with tempfile.TemporaryDirectory() as name:
        peers = peer_prefill(engine, path, name)
    middle = figures[2048]
    goals = [
        Goal("first token at 2,048: computed / restored", middle["ratio"], 10.0, at_least=True),
        Goal("restore / (read + BLAKE3 + copy) at 2,048", middle["io_ratio"], 2.0, at_least=False),
    ]
    if peers:
        slowest = min(p["ratio"] for p in peers.values())
        goals.append(Goal("our prefill / transformers bf16, worst", slowest, 0.7, at_least=True))
    raw: dict[str, object] = {
        "ready_s": ready_s,
        "self_test_s": engine.tested.seconds,
        "resume": figures,
        "prefill_beside_transformers": peers,
        "llama_cpp": llama_cpp(path),
    }
    return report("resume", goals, raw, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
