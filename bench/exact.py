"""Does it matter for the output how the work is divided, stored or moved?

A natural text of more than 2,000 tokens (English, code, Chinese, emoji) is computed in chunks
of 512 rows: the reference. Then it is computed in other ways, in each numerics, among them
behind a prefix restored from each tier, and every logit of every position computed and every
byte of keys and values is compared. The goal is 0
differences. With another number of threads the bits may differ, but then the numerics class
differs too.
"""

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from bench.natural_text import natural_text
from bench.pages import Memory, Pages
from bench.result import Goal, arguments, report, say
from model_host.engine import Tokenizer
from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import CHUNK_TOKENS, Logits
from model_host.io.fetch import cache_dir, resolve
from model_host.kv import SLAB_TOKENS, Bytes

MODEL = "SmolLM2-135M-Instruct"
NUMERICS = ("q4", "bf16", "fp32")
TOKENS_MIN = 2_000
DRAFT_TOKENS = 4
NEIGHBOURS = 7


@dataclass(slots=True)
class Compared:
    """Differences from the reference."""

    positions: int = 0
    logits: int = 0
    keys_values_bytes: int = 0

    def add(self, logits: Logits, expected: Logits) -> None:
        """Compare the logits of some positions."""
        self.positions += len(logits)
        self.logits += int(np.count_nonzero(logits != expected))

    def add_pages(self, found: Bytes, expected: Bytes) -> None:
        """Compare all keys and values."""
        assert len(found) == len(expected), "all positions are computed"
        self.keys_values_bytes += int(np.count_nonzero(found != expected))


@dataclass
class Reference:
    """A text, and what its plain computation gives."""

    memory: Memory
    ids: list[int]
    logits: Logits
    keys_values: Bytes

    @classmethod
    def compute(cls, engine: TorchEngine, ids: list[int]) -> "Reference":
        """Compute in the fewest, largest chunks."""
        memory = Memory(engine)
        pages = memory.pages(*range(_slabs(ids)))
        logits = memory.compute(pages, ids)
        reference = cls(memory, ids, logits, memory.keys_values(pages))
        memory.close()
        return reference

    def pages(self, first: int = 0) -> Pages:
        """Return an empty sequence in slabs from a number on."""
        return self.memory.pages(*range(first, first + _slabs(self.ids)))

    def follow(self, pages: Pages, sizes: Iterable[int]) -> Compared:
        """Compute the whole text in steps of these sizes, and compare."""
        compared = Compared()
        for size in sizes:
            part = self.ids[pages.tokens : pages.tokens + size]
            if not part:
                break
            at = pages.tokens
            (logits,) = self.memory.step((pages, part))
            compared.add(logits, self.logits[at : at + len(part)])
        compared.add_pages(self.memory.keys_values(pages), self.keys_values)
        return compared


def _slabs(ids: list[int]) -> int:
    return -(-len(ids) // SLAB_TOKENS)


# --- the ways ------------------------------------------------------------------------------


def decoded(reference: Reference) -> Compared:
    """Token by token."""
    return reference.follow(reference.pages(), [1] * len(reference.ids))


def chunked(reference: Reference) -> Compared:
    """In chunks of random sizes, in slabs of any order."""
    rng = random.Random(1)
    slabs = rng.sample(range(2 * _slabs(reference.ids)), _slabs(reference.ids))
    sizes = (rng.choice((1, 3, 16, 17, 64, 100, 200, 333, CHUNK_TOKENS)) for _ in reference.ids)
    return reference.follow(reference.memory.pages(*slabs), sizes)


def batched(reference: Reference) -> Compared:
    """Beside other sequences, with tails side by side."""
    rng, ids, compared = random.Random(2), reference.ids, Compared()
    count = _slabs(ids)
    mine = reference.memory.pages(*range(20, 20 + count))
    others = [reference.memory.pages(at) for at in range(NEIGHBOURS)]
    while mine.tokens < len(ids):
        part = ids[mine.tokens : mine.tokens + rng.choice((1, 1, 5, 60, 200))]
        beside = []
        for at, other in enumerate(others):
            rows = rng.choice((1, 1, 4))
            other.tokens %= SLAB_TOKENS - rows
            beside.append((other, ids[at : at + rows]))
        start = mine.tokens
        (logits, *_) = reference.memory.step((mine, part), *beside)
        compared.add(logits, reference.logits[start : mine.tokens])
    compared.add_pages(reference.memory.keys_values(mine), reference.keys_values)
    return compared


def shared(reference: Reference) -> Compared:
    """As branches that fork from one prefix: full slabs by reference, the last one copied."""
    rng, compared, count = random.Random(3), Compared(), _slabs(reference.ids)
    whole = reference.pages()
    reference.memory.compute(whole, reference.ids)
    for _ in range(6):
        fork = rng.randrange(1, len(reference.ids))
        full, rest = divmod(fork, SLAB_TOKENS)
        branch = reference.memory.pages(*whole.slabs[:full], *range(20, 20 + count - full))
        branch.tokens = fork
        if rest:
            reference.memory.engine.memory.copy(whole.slabs[full], 20, rest)
        stop = min(fork + 100, len(reference.ids))
        while branch.tokens < stop:
            at = branch.tokens
            part = reference.ids[at : min(at + rng.choice((1, 7, 60)), stop)]
            (logits,) = reference.memory.step((branch, part))
            compared.add(logits, reference.logits[at : branch.tokens])
        whole.tokens = stop
        expected = reference.memory.keys_values(whole)
        compared.add_pages(reference.memory.keys_values(branch), expected)
    return compared


def verified(reference: Reference) -> Compared:
    """With drafted tokens: right ones are kept, wrong ones computed over."""
    rng, ids, compared, pages = random.Random(4), reference.ids, Compared(), reference.pages()
    while pages.tokens < len(ids):
        at, right = pages.tokens, rng.randrange(1, DRAFT_TOKENS + 2)
        part = ids[at : at + right]
        room = _slabs(ids) * SLAB_TOKENS - at - len(part)
        wrong = [rng.randrange(1000, 40_000) for _ in range(min(DRAFT_TOKENS, room))]
        (logits,) = reference.memory.step((pages, part + wrong))
        compared.add(logits[: len(part)], reference.logits[at : at + len(part)])
        pages.tokens = at + len(part)
    compared.add_pages(reference.memory.keys_values(pages), reference.keys_values)
    return compared


def written_back(reference: Reference) -> Compared:
    """Read out of memory in groups and written elsewhere, half-way."""
    ids, store, count = reference.ids, reference.memory.engine.memory, _slabs(reference.ids)
    source, target = reference.pages(), reference.memory.pages(*range(20, 20 + count))
    half = len(ids) // 2
    reference.memory.compute(source, ids[:half])
    for at in range(0, half, 64):
        slab, start = divmod(at, SLAB_TOKENS)
        stop = min(start + 64, start + half - at)
        store.write(target.slabs[slab], start, stop, store.read(source.slabs[slab], start, stop))
    target.tokens = half
    return reference.follow(target, [100] * len(ids))


WAYS: dict[str, Callable[[Reference], Compared]] = {
    "token by token": decoded,
    "chunks of random sizes": chunked,
    "in a batch": batched,
    "branches on shared slabs": shared,
    "speculative, drafts verified": verified,
    "read and written elsewhere": written_back,
}


# --- the measurement -----------------------------------------------------------------------


def with_threads(reference: Reference, count: int) -> Compared:
    """Compute with another number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return reference.follow(reference.pages(), [CHUNK_TOKENS] * len(reference.ids))
    finally:
        torch.set_num_threads(before)


def measure(numerics: str) -> Iterator[tuple[str, Compared]]:
    """Yield the differences of each way."""
    from bench.exact_stored import measure_stored  # it needs what is defined here

    def load_engine() -> TorchEngine:
        return TorchEngine.load(resolve(MODEL), numerics=numerics, cache_dir=cache_dir())

    engine = load_engine()
    ids = Tokenizer.build(engine.file.tokenizer).encode(natural_text())
    assert len(ids) >= TOKENS_MIN, "the text is long enough"
    reference = Reference.compute(engine, ids)
    for name, way in WAYS.items():
        yield name, way(reference)
        reference.memory.close()
    yield from measure_stored(reference, load_engine)
    for count in (1, 2):
        yield f"{count} threads", with_threads(reference, count)
        reference.memory.close()


def main() -> int:
    """Compare, and print the differences."""
    flags = arguments(__doc__ or "")
    goals, raw = [], dict[str, object]()
    for numerics in NUMERICS:
        found = {}
        for name, compared in measure(numerics):
            say(f"{numerics}, {name}: {compared}")
            found[name] = {
                "positions": compared.positions,
                "differing_logits": compared.logits,
                "differing_bytes": compared.keys_values_bytes,
            }
            differing = compared.logits + compared.keys_values_bytes
            goals.append(Goal(f"{numerics}, {name}: differences", differing, 0, at_least=False))
        raw[numerics] = found
    return report("exact", goals, {"ways": raw}, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
