"""How long does a restore take from each tier, and how many bytes does a turn write?

At 1,024, 2,048, 4,096 and 8,000 tokens, in alternation: a context found in memory, one read
from disk, one opened from an archive that a client carried, each beside its floor: the same
bytes copied, from memory to memory, or from the page cache to the slabs where they are
needed, in pieces of the same size and without any check. Then an archive that a client hands
over, and one that a real hub on loopback keeps: read, checked, stored on disk and restored from
there, until its keys and values lie in the slabs. Then
the first token of a turn of 16 tokens, restored and computed. Then the bytes that 20 turns
write. Beside it llama.cpp's state save and load, where that is installed.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench import archives, jobs
from bench.hub_blobs import HubBlobs
from bench.result import Goal, arguments, report, say
from bench.resume import NEW_TOKENS, first_token, llama_cpp, restore_seconds, token_ids
from model_host.engine.torch_engine import TorchEngine
from model_host.engine.weights import DTYPES
from model_host.io.fetch import cache_dir, resolve
from model_host.kv import SLAB_TOKENS, Manifest

SIZES = (1024, 2048, 4096, 8000)
CONTEXT = 8192
NUMERICS = ("q4", "bf16")
"""q4 is what `auto` takes for this model."""
ROUNDS = 5
TURNS, TURN_TOKENS = 20, 40
Figures = dict[str, float]


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def stored(engine: TorchEngine, folder: Path, conversation: bytes, ids: list[int]) -> Figures:
    """Compute and store a context; measure the same context found in memory."""
    with jobs.host(engine, folder) as host:
        job = host.job(ids, 1, conversation=conversation)
        host.run(job)
        save_s = timed(lambda: host.save(job))
        namespace = engine.namespace(jobs.OWNER).digest
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            sequence = host.pool.open([*ids, 7], namespace, conversation)
            times.append(time.perf_counter() - began)
            assert sequence.tokens >= len(ids)
            host.pool.close(sequence)
        nbytes = len(ids) * engine.memory.bytes_per_token
    held = np.ones(nbytes, np.uint8)
    floor = [timed(held.copy) for _ in range(ROUNDS)]
    ram_s, ram_floor_s = statistics.median(times), statistics.median(floor)
    return {
        "bytes": nbytes,
        "save_s": save_s,
        "ram_s": ram_s,
        "ram_floor_s": ram_floor_s,
        "ram_ratio": ram_s / ram_floor_s,
    }


def disk_floor_seconds(engine: TorchEngine, folder: Path, conversation: bytes) -> float:
    """Return the seconds to read the same bytes, and to copy them into empty slabs."""
    with jobs.host(engine, folder) as host:
        pages, manifest = host.pages._files.folder(conversation), newest(host, conversation)
        handles = {p.file: os.open(pages / p.file, os.O_RDONLY) for p in manifest.pieces}
        buffer = np.empty(max(piece.length for piece in manifest.pieces), np.uint8)
        at, began = 0, time.perf_counter()
        for piece in manifest.pieces:
            os.preadv(handles[piece.file], [buffer[: piece.length]], piece.offset)
            slab, start = divmod(at, SLAB_TOKENS)
            stop = start + piece.stop - at
            engine.memory.write(slab, start, stop, buffer[: piece.length])
            at = piece.stop
        seconds = time.perf_counter() - began
        for handle in handles.values():
            os.close(handle)
    return seconds


def newest(host: jobs.Host, conversation: bytes) -> Manifest:
    return host.pages.manifests(conversation)[0]


def archive_seconds(
    engine: TorchEngine, folder: Path, conversation: bytes, ids: list[int], hub: HubBlobs
) -> Figures:
    """Measure an archive: written; carried by a client or kept at the hub, until restored."""
    with jobs.host(engine, folder) as host:
        began = time.perf_counter()
        data = archives.sealed(host, conversation)
        export_s = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as name:
        carried, fetched = Path(name) / "carried", Path(name) / "fetched"
        carried.write_bytes(data)
        client = stored_and_restored(engine, Path(name) / "one", conversation, ids, carried)
        began = time.perf_counter()
        digest = hub.put(data)
        upload_s = time.perf_counter() - began
        download_s = timed(lambda: hub.get(digest, fetched))
        at_hub = stored_and_restored(engine, Path(name) / "two", conversation, ids, fetched)
    return {
        "bytes": len(data),
        "export_s": export_s,
        "client_s": client,
        "upload_s": upload_s,
        "download_s": download_s,
        "hub_s": download_s + at_hub,
    }


def stored_and_restored(
    engine: TorchEngine, folder: Path, conversation: bytes, ids: list[int], archive: Path
) -> float:
    """Return the seconds from an archive's file to keys and values in the slabs."""
    with jobs.host(engine, folder) as host:
        store_s = timed(lambda: archives.store(host, conversation, archive))
    return store_s + restore_seconds(engine, folder, conversation, ids)


def one_size(engine: TorchEngine, folder: Path, size: int, hub: HubBlobs) -> dict[str, object]:
    """Measure all tiers at one length, in alternation with their floors."""
    conversation, bare = (number.to_bytes(32, "little") for number in (size, size + 1))
    context = token_ids(size, size)
    new = context + token_ids(NEW_TOKENS, size + 1)
    figures: dict[str, object] = dict(stored(engine, folder, conversation, context))
    disk, floor, restored, computed, carried = [], [], [], [], []
    for _ in range(ROUNDS):
        disk.append(restore_seconds(engine, folder, conversation, new))
        floor.append(disk_floor_seconds(engine, folder, conversation))
        restored.append(first_token(engine, folder, conversation, new))
        carried.append(archive_seconds(engine, folder, conversation, new, hub))
    for _ in range(1 if size > 4096 else 3):
        computed.append(first_token(engine, folder, bare, new))
    figures |= {
        "disk_s": statistics.median(disk),
        "disk_floor_s": statistics.median(floor),
        "disk_ratio": statistics.median(a / b for a, b in zip(disk, floor, strict=True)),
        "first_token_restored_s": statistics.median(restored),
        "first_token_computed_s": statistics.median(computed),
        "first_token_ratio": statistics.median(computed) / statistics.median(restored),
        "archive": {name: statistics.median(each[name] for each in carried) for name in carried[0]},
    }
    say(f"{size} tokens: {figures}")
    return figures


def turns(engine: TorchEngine, folder: Path) -> Figures:
    """Write the checkpoints of 20 turns; compare their bytes with those of their new tokens."""
    conversation, ids = b"t" * 32, token_ids(TURNS * TURN_TOKENS + 500, 5)
    worst, written, payload = 0.0, 0, 0
    with jobs.host(engine, folder) as host:
        token_bytes = engine.memory.bytes_per_token
        for turn in range(TURNS + 1):
            job = host.job(ids[: 500 + turn * TURN_TOKENS], 1, conversation=conversation)
            host.run(job)
            before, stored_tokens = host.pages.counters.bytes_written, 0
            if turn:
                stored_tokens = newest(host, conversation).tokens
            host.save(job)
            new = host.pages.counters.bytes_written - before
            own = (newest(host, conversation).tokens - stored_tokens) * token_bytes
            if turn:
                worst, written, payload = max(worst, new / own), written + new, payload + own
    return {"bytes_per_turn": written / TURNS, "ratio": written / payload, "worst_ratio": worst}


def measured(path: Path, numerics: str) -> dict[str, Any]:
    """Measure all tiers at all lengths, and the bytes of turns, under one numerics."""
    engine = TorchEngine.load(
        path, numerics=numerics, cache_dir=cache_dir(), context_tokens=CONTEXT
    )
    say(numerics)
    with tempfile.TemporaryDirectory() as name, HubBlobs(Path(name) / "hub") as hub:
        figures = {size: one_size(engine, Path(name), size, hub) for size in SIZES}
        written = turns(engine, Path(name))
    return {"restore": figures, "turns": written}


def goals_of(numerics: str, found: dict[str, Any]) -> list[Goal]:
    """Return the goals of one numerics."""
    figures = found["restore"]

    def worst(name: str) -> float:
        return max(figure[name] for figure in figures.values())

    def archive_ratio(tier: str, size: int) -> float:
        figure = figures[size]
        ratio: float = figure["first_token_computed_s"] / figure["archive"][tier]
        return ratio

    at_most = (
        ("found in memory / copied, worst", worst("ram_ratio"), 2.0),
        ("restored from disk / read and copied, worst", worst("disk_ratio"), 2.0),
        ("bytes written / bytes of new tokens, worst turn", found["turns"]["worst_ratio"], 1.1),
    )
    at_least = (
        ("first token at 4,096: computed / restored", figures[4096]["first_token_ratio"], 30.0),
        ("first token at 2,048: computed / restored", figures[2048]["first_token_ratio"], 40.0),
        ("4,096 tokens: computed / from a client's archive", archive_ratio("client_s", 4096), 1.0),
        ("4,096 tokens: computed / from the hub", archive_ratio("hub_s", 4096), 1.0),
    )
    return [
        *(Goal(f"{numerics}, {name}", value, bar, at_least=False) for name, value, bar in at_most),
        *(Goal(f"{numerics}, {name}", value, bar, at_least=True) for name, value, bar in at_least),
    ]


def main() -> int:
    """Measure and print the results."""
    flags = arguments(__doc__ or "")
    path = resolve("SmolLM2-135M-Instruct")
    found = {numerics: measured(path, numerics) for numerics in NUMERICS if numerics in DTYPES}
    goals = [goal for numerics, each in found.items() for goal in goals_of(numerics, each)]
    raw: dict[str, object] = {**found, "llama_cpp": llama_cpp(path, SIZES) or "not installed"}
    return report("restore", goals, raw, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
