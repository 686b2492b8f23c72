"""How long does a person wait for a turn, at the reader of a real hub?

A hub and a host in processes of their own, a reader in this one: a context of 512 or 2,048
tokens, a message of 20 tokens, 200 tokens out at temperature 0.8. The first turn of a
conversation is cold, the second finds its context in memory. Beside it, in alternation: the
bare engine, which answers the same request behind the same tokens and so gives the same
answer, and llama.cpp's own loop where it is installed (`make bench-peers`).
"""

import asyncio
import importlib.util
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bench import jobs
from bench.hub_process import hub_process
from bench.result import Goal, arguments, report, say
from bench.talk import Talk
from model_host.engine import Tokenizer
from model_host.engine.torch_engine import TorchEngine
from model_host.generation import gather_branch, render_branch
from model_host.io.fetch import cache_dir, resolve
from model_host.io.profiles.offers import Offer, make_offer
from model_host.rendering import Contexts
from replica.ids import ConversationId, EntryId, PublicKey
from replica.io.driver.replica import Replica
from replica.link import DraftReceived, Event
from replica.log import (
    Message,
    Request,
    Sampling,
    Speaker,
    Text,
)

MODEL = "SmolLM2-135M-Instruct"
SIZES = (512, 2048)
MESSAGE_TOKENS = 20
OUTPUT_TOKENS = 200
ROUNDS = 5
KV_BYTES = 2 << 30
NUMERICS = ("q4", "bf16")
SAMPLING = Sampling(temperature=0.8, seed=7)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the host answered it: the tokens of its context, and those of its answer."""

    request: Request
    context: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """The times of one turn at its reader, in seconds from the request."""

    first_s: float
    last_s: float

    @property
    def per_s(self) -> float:
        """The tokens per second that the reader sees, from the first token to the last."""
        return (OUTPUT_TOKENS - 1) / (self.last_s - self.first_s)


# --- ours ----------------------------------------------------------------------------------


@contextmanager
def host_process(folder: Path, hub: str, numerics: str) -> Iterator[PublicKey]:
    """Start a host, yield its key, end it by its process."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "model_host", "serve", "--hub", hub),
            *("--data-dir", str(folder), "--numerics", numerics),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        if not ready:
            raise RuntimeError(f"the host ended with {process.wait()} before it was ready")
        yield PublicKey(bytes.fromhex(ready[2]))
    finally:
        process.terminate()
        process.wait()


class TimedTalk(Talk):
    """One conversation with a host; its turns are timed at a reader."""

    def __init__(self, replica: Replica, conversation: ConversationId, host: PublicKey) -> None:
        """Listen to the drafts of the conversation."""
        super().__init__(replica, conversation, host)
        self._first: float | None = None
        replica.listen(self._receive)

    def _receive(self, event: Event) -> None:
        if isinstance(event, DraftReceived) and event.draft.token_ids and self._first is None:
            self._first = time.perf_counter()

    async def turn(self, text: str, offer: Offer) -> tuple[Turn, Asked]:
        """Send a message and a request; return once the reader has the tokens."""
        held = self.held
        tips = held.order.tips()
        tip = tips[-1] if tips else None
        answer = tip.generation if tip is not None else None
        parents = (answer,) if answer is not None else (EntryId(self.id),)
        request = Request(
            self.host,
            SAMPLING,
            output_tokens_max=OUTPUT_TOKENS,
            output_tokens_min=OUTPUT_TOKENS,
            membership_heads=held.log.membership_heads(),
        )
        self._first = None
        began = time.perf_counter()
        _, asked = await self.replica.append_chain(
            self.id,
            (Message(Speaker.USER, (Text(text),)), request),
            parents=parents,
            basis=tip.id if tip is not None else None,
        )
        await self.replica.wait_for(lambda: held.order.answer(asked.id) is not None, 120)
        last, generation = time.perf_counter(), held.order.answer(asked.id)
        if generation is None or self._first is None:
            raise RuntimeError("no answer")
        if len(generation.token_ids) != OUTPUT_TOKENS:
            raise RuntimeError(f"{generation.finish_detail}: {len(generation.token_ids)} tokens")
        branch = gather_branch(held, held.order.nodes[held.order.seal_of[asked.id]], Contexts(0))
        context = render_branch(branch, offer.renderer).context.ids
        return Turn(self._first - began, last - began), Asked(
            request, context, generation.token_ids
        )


async def ours(
    address: str, host: PublicKey, folder: Path, texts: dict[int, str], offer: Offer
) -> list[tuple[Turn, Asked]]:
    """Return a cold and a warm turn per size, in the order of SIZES."""
    turns = []
    key = Ed25519PrivateKey.generate()
    async with Replica.open(folder / "log.db", key, address) as replica:
        for size in SIZES:
            talk = await TimedTalk.begin(replica, host)
            await replica.wait_synced(talk.id)
            turns.append(await talk.turn(texts[size], offer))
            turns.append(await talk.turn(texts[0], offer))
    return turns


# --- beside it -------------------------------------------------------------------------------


def bare(host: jobs.Host, asked: Asked, conversation: bytes, end_ids: frozenset[int]) -> Turn:
    """Compute the same with the batcher alone: no log, no hub, no text."""
    job = host.job(
        asked.context,
        OUTPUT_TOKENS,
        conversation=conversation,
        request=asked.request,
        end_ids=end_ids,
    )
    times = host.run(job)[job]
    if tuple(job.ids[len(asked.context) :]) != asked.answer:
        raise RuntimeError("the bare engine gave other tokens than the host")
    return Turn(times[0], times[-1])


def llama_cpp(path: Path) -> Callable[[list[int], int], Turn] | None:
    """Return llama.cpp's own loop over the same tokens; None if it is not installed.

    It is given the ids of a context, and the number of them that it has seen before.
    """
    if importlib.util.find_spec("llama_cpp") is None:
        return None
    from llama_cpp import Llama

    model: Any = Llama(
        str(path), n_ctx=4096, n_threads=os.cpu_count(), n_threads_batch=os.cpu_count(),
        verbose=False,
    )  # fmt: skip

    def turn(ids: list[int], known: int) -> Turn:
        model.reset()
        if known:
            model.eval(ids[:known])
        new = ids[known:]
        began = time.perf_counter()
        model.eval(new)
        first = 0.0
        for count in range(OUTPUT_TOKENS):
            token = model.sample(temp=SAMPLING.temperature, top_k=0, top_p=1.0, min_p=0.0)
            first = first or time.perf_counter() - began
            if count < OUTPUT_TOKENS - 1:
                model.eval([token])
        return Turn(first, time.perf_counter() - began)

    return turn


# --- the measurement -------------------------------------------------------------------------


def measure(numerics: str, path: Path) -> dict[str, list[Turn]]:
    """Return the turns by name: ours, bare and llama.cpp, cold and warm, per size."""
    engine = TorchEngine.load(path, numerics=numerics, cache_dir=cache_dir())
    tokenizer = Tokenizer.build(engine.file.tokenizer)
    offer = make_offer(
        engine.file, numerics=numerics, context_tokens=engine.file.config.context_tokens,
        kv_bytes=KV_BYTES,
    )  # fmt: skip
    texts = {size: text_of(tokenizer, size) for size in (*SIZES, MESSAGE_TOKENS)}
    texts[0] = texts[MESSAGE_TOKENS]
    found: dict[str, list[Turn]] = {}
    peer = llama_cpp(path)
    with (
        tempfile.TemporaryDirectory() as name,
        hub_process(Path(name) / "hub") as hub,
        host_process(Path(name) / "host", hub.address, numerics) as key,
    ):
        for number in range(ROUNDS):
            folder = Path(name) / f"reader{number}"
            turns = asyncio.run(ours(hub.address, key, folder, texts, offer))
            for index, (turn, _) in enumerate(turns):
                found.setdefault(_name("ours", index), []).append(turn)
            measure_beside(
                engine, folder, peer, [asked for _, asked in turns], offer.stop_ids, found
            )
            say(f"{numerics}, round {number + 1}: {_last(found)}")
    return found


def measure_beside(
    engine: TorchEngine,
    folder: Path,
    peer: Callable[[list[int], int], Turn] | None,
    turns: list[Asked],
    end_ids: frozenset[int],
    found: dict[str, list[Turn]],
) -> None:
    """Add the turns of the bare engine and of llama.cpp to those found."""
    with jobs.host(engine, folder) as host:
        for index, asked in enumerate(turns):
            turn = bare(host, asked, bytes([index // 2]) * 32, end_ids)
            found.setdefault(_name("bare", index), []).append(turn)
            if peer is not None:
                before = turns[index - 1]
                known = len(before.context) + len(before.answer) if index % 2 else 0
                turn = peer(list(asked.context), known)
                found.setdefault(_name("llama.cpp", index), []).append(turn)


def text_of(tokenizer: Tokenizer, tokens: int) -> str:
    """Return plain text of about so many tokens."""
    words = [
        "the",
        "sea",
        "was",
        "calm",
        "and",
        "a",
        "small",
        "boat",
        "lay",
        "on",
        "its",
        "side",
        "under",
        "grey",
        "clouds",
        "that",
        "day",
    ]
    text = " ".join(words[(7 * i) % len(words)] for i in range(tokens))
    ids = tokenizer.encode(text)[:tokens]
    return tokenizer.decode_bytes(ids).decode()


def _name(who: str, index: int) -> str:
    return f"{who} {SIZES[index // 2]} {'warm' if index % 2 else 'cold'}"


def _last(found: dict[str, list[Turn]]) -> str:
    return "; ".join(
        f"{name} {turns[-1].first_s:.2f}/{turns[-1].last_s:.2f} s" for name, turns in found.items()
    )


def ratio(found: dict[str, list[Turn]], of: str, to: str, key: Callable[[Turn], float]) -> float:
    """Return the median over rounds of one figure divided by another."""
    pairs = zip(found[of], found[to], strict=True)
    return statistics.median(key(a) / key(b) for a, b in pairs)


def goals_of(found: dict[str, list[Turn]]) -> list[Goal]:
    """Return the goals of the worst size."""
    speeds = [
        ratio(found, f"ours {size} {kind}", f"bare {size} {kind}", lambda turn: turn.per_s)
        for size in SIZES
        for kind in ("cold", "warm")
    ]
    goals = [Goal("reader's tok/s / bare decode, worst", min(speeds), 0.9, at_least=True)]
    if any(name.startswith("llama.cpp") for name in found):
        for kind, bar in (("cold", 0.7), ("warm", 1.15)):
            worst = max(
                ratio(
                    found,
                    f"ours {size} {kind}",
                    f"llama.cpp {size} {kind}",
                    lambda turn: turn.last_s,
                )
                for size in SIZES
            )
            name = f"whole turn, {kind} context / llama.cpp, worst"
            goals.append(Goal(name, worst, bar, at_least=False))
    return goals


def main() -> int:
    """Measure each numerics; the goals are those of the one whose turns are shortest."""
    flags = arguments(__doc__ or "")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    path = resolve(MODEL)
    measured = {numerics: measure(numerics, path) for numerics in NUMERICS}

    def whole(numerics: str) -> float:
        turns = [
            t for name, ts in measured[numerics].items() if name.startswith("ours") for t in ts
        ]
        return statistics.mean(turn.last_s for turn in turns)

    best = min(NUMERICS, key=whole)
    raw: dict[str, object] = {
        "best": best,
        "turns": {
            numerics: {
                name: [{"first_s": t.first_s, "last_s": t.last_s, "tok_per_s": t.per_s} for t in ts]
                for name, ts in found.items()
            }
            for numerics, found in measured.items()
        },
    }
    return report("turn", goals_of(measured[best]), raw, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
