"""The rows of bench/exact.py that begin with keys and values which were stored or moved."""

import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import archives, jobs
from bench.exact import Compared, Reference
from bench.hub_blobs import HubBlobs
from bench.pages import Memory
from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import Slice
from model_host.kv import KVSequence

CONVERSATION = b"c" * 32
SIZES = (1, 7, 16, 60, 200)


@dataclass
class Stored:
    """A prefix of the reference's text, stored by one host."""

    reference: Reference
    folder: Path
    tokens: int
    archive: bytes
    load_engine: Callable[[], TorchEngine]

    def follow(self, host: jobs.Host, sequence: KVSequence) -> Compared:
        """Compute the rest of the text behind what was found, and compare all of it."""
        assert sequence.tokens >= self.tokens, "the whole prefix was found"
        reference, compared, rng = self.reference, Compared(), random.Random(5)
        while sequence.tokens < len(reference.ids):
            at = sequence.tokens
            part = reference.ids[at : at + rng.choice(SIZES)]
            host.pool.grow(sequence, len(part))
            (logits,) = host.engine.step([Slice(sequence, part, len(part))])
            host.pool.advance(sequence, part)
            compared.add(logits, reference.logits[at : at + len(part)])
        found = Memory(host.engine).keys_values(sequence)  # type: ignore[arg-type]  # a page table
        compared.add_pages(found, reference.keys_values)
        host.pool.close(sequence)
        return compared

    def restored(self, engine: TorchEngine, folder: Path, archive: Path | None = None) -> Compared:
        """Restore from a folder, into which an archive is stored first; follow."""
        with jobs.host(engine, folder) as host:
            if archive is not None:
                archives.store(host, CONVERSATION, archive)
            ids, namespace = self.reference.ids, engine.namespace(jobs.OWNER).digest
            stored = host.pages.find(CONVERSATION, namespace, ids)
            sequence = host.pool.open(ids, namespace, CONVERSATION)
            with host.pool.restoring(sequence, ids[: stored.tokens]) as staging:
                host.pages.load(stored, staging)
            return self.follow(host, sequence)


def from_memory(stored: Stored) -> Compared:
    """Found in memory, as a conversation's next turn finds it."""
    engine = stored.reference.memory.engine
    assert isinstance(engine, TorchEngine)
    ids = stored.reference.ids
    with tempfile.TemporaryDirectory() as name, jobs.host(engine, Path(name)) as host:
        host.run(host.job(ids[: stored.tokens], 1, conversation=CONVERSATION))
        sequence = host.pool.open(ids, engine.namespace(jobs.OWNER).digest, CONVERSATION)
        return stored.follow(host, sequence)


def from_disk(stored: Stored) -> Compared:
    """Restored from the host's disk."""
    return stored.restored(_engine(stored), stored.folder)


def from_hub(stored: Stored) -> Compared:
    """Restored from an archive that a hub kept, by a host without its disk."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "fetched"
        with HubBlobs(Path(name)) as hub:
            hub.get(hub.put(stored.archive), path)
        return stored.restored(_engine(stored), Path(name) / "host", path)


def from_client(stored: Stored) -> Compared:
    """Restored from an archive that a client carried, by a host without its disk."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "carried"
        path.write_bytes(stored.archive)
        return stored.restored(_engine(stored), Path(name) / "host", path)


def on_second_host(stored: Stored) -> Compared:
    """Imported and continued by another engine of the namespace, loaded for itself."""
    second = stored.load_engine()
    assert second.namespace(b"") == _engine(stored).namespace(b""), "one namespace"
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "carried"
        path.write_bytes(stored.archive)
        return stored.restored(second, Path(name) / "host", path)


def _engine(stored: Stored) -> TorchEngine:
    engine = stored.reference.memory.engine
    assert isinstance(engine, TorchEngine)
    return engine


STORED_WAYS: dict[str, Callable[[Stored], Compared]] = {
    "restored from memory": from_memory,
    "restored from disk": from_disk,
    "restored from the hub": from_hub,
    "restored from a client's archive": from_client,
    "imported on a second host": on_second_host,
}


def measure_stored(
    reference: Reference, load_engine: Callable[[], TorchEngine]
) -> Iterator[tuple[str, Compared]]:
    """Yield the differences of each way."""
    engine, tokens = reference.memory.engine, len(reference.ids) * 2 // 3
    assert isinstance(engine, TorchEngine)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with jobs.host(engine, folder) as host:
            job = host.job(reference.ids[:tokens], 1, conversation=CONVERSATION)
            host.run(job)
            host.save(job)
            archive = archives.sealed(host, CONVERSATION)
        stored = Stored(reference, folder, tokens, archive, load_engine)
        for way, measure in STORED_WAYS.items():
            yield way, measure(stored)
