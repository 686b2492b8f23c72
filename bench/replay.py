"""How long does it take to verify a conversation, and are all lies found?

A conversation of 4,000 tokens with a real hub and host, half of them generated at temperature
0.8: VERIFY at a client beside the time in which its host decoded it, and beside the plain
prefill of the same tokens in the same chunks of the same memory. Then 200 answers with one
token changed at random, and answers drawn with another seed or at another temperature, signed
by a lying host, each on a branch of its own; other weights; another template. At last the 16
agents of bench/agents, honest.
"""

import asyncio
import logging
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bench.agents import AGENTS, MESSAGE_TOKENS, OUTPUT_TOKENS, PREFIX_TOKENS
from bench.agents import TURNS as AGENT_TURNS
from bench.hub_process import hub_process
from bench.lying_host import Liar, with_another_template, with_other_weights, with_token
from bench.result import Goal, arguments, report, say
from bench.talk import Talk
from bench.turn import text_of
from model_host.engine import Tokenizer
from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import CHUNK_TOKENS, Engine
from model_host.io.config import HostConfig
from model_host.io.fetch import cache_dir, resolve
from model_host.io.server import HostServer
from model_host.io.server import start as start_host
from model_host.kv import PagePool
from model_host.replay import Pass, ReplayPages, collect, render_cases
from replica.conversation import Cause, Conversation, Finding, Outcome, Receipt, ReplayMode
from replica.ids import EntryId
from replica.io import HostCalls, Replica
from replica.log import Generation, Sampling

MODEL = "SmolLM2-135M-Instruct"
TURNS = 20
TURN_TOKENS = 100
"""Tokens of each message with its literals, and of each answer."""
LITERAL_TOKENS = 9
LIES = 200
DRAWS = 20
ROUNDS = 3
TEMPERATURE = 0.8

Hosting = Callable[[TorchEngine], AbstractAsyncContextManager[HostServer]]


@dataclass
class Verified:
    """All that a replay yielded, with its time at the client."""

    receipt: Receipt
    findings: dict[EntryId, Finding] = field(default_factory=dict)
    seconds: float = 0.0


# --- conversations ---------------------------------------------------------------------


async def ask(talk: Talk, text: str, tokens: int, seed: int) -> Generation:
    """Ask for an answer of just so many tokens."""
    sampling = Sampling(temperature=TEMPERATURE, seed=seed)
    await talk.say(text)
    request = await talk.request(sampling=sampling, tokens=tokens, output_tokens_min=tokens)
    generation = await talk.answer(request, timeout_s=300)
    if len(generation.token_ids) != tokens:
        raise RuntimeError("an answer of another length")
    return generation


async def verify(talk: Talk, host: HostServer) -> Verified:
    """Let the host verify a conversation; time it at the client."""
    await talk.reach(host.replica)
    findings: dict[EntryId, Finding] = {}
    began = time.perf_counter()
    async with HostCalls(host.address, talk.replica.key, host.key) as calls:
        async for event in calls.replay(talk.id, ReplayMode.VERIFY):
            if isinstance(event, Finding):
                findings[event.answer] = event
            elif isinstance(event, Receipt):
                return Verified(event, findings, time.perf_counter() - began)
    raise RuntimeError("a replay without a receipt")


async def prefill_seconds(talk: Talk, host: HostServer) -> float:
    """Time the prefill of the whole conversation in the same chunks, without logits."""
    (*_, last) = render_cases(collect(talk.held), host.offer.renderer, host.profile.digest)
    assert last.case.recorded is not None
    whole = Pass((*last.context.ids, *last.case.recorded.token_ids), 0)

    def pages_of(engine: Engine, pool: PagePool, _rows: int) -> ReplayPages:
        return ReplayPages(engine, pool, b"plain prefill of the bench......")

    def chunk(pages: ReplayPages, at: int, *_: object) -> int:
        return pages.compute(whole, at, CHUNK_TOKENS).stop

    pages, at = await host.thread.between_steps(pages_of), 0
    began = time.perf_counter()
    while at < len(whole.ids):
        at = await host.thread.between_steps(partial(chunk, pages, at))
    seconds = time.perf_counter() - began
    await host.thread.between_steps(lambda *_: pages.free())
    return seconds


# --- the parts of the measurement --------------------------------------------------------


@dataclass
class Speed:
    """The times of one conversation, in seconds."""

    tokens: int
    decoded: float
    verified: list[float] = field(default_factory=list)
    prefilled: list[float] = field(default_factory=list)

    def ratio(self, seconds: list[float]) -> float:
        """Return the median of times divided by those of VERIFY, of the same round."""
        pairs = zip(seconds, self.verified, strict=True)
        return statistics.median(a / b for a, b in pairs)


async def measure_speed(talk: Talk, host: HostServer, tokenizer: Tokenizer) -> Speed:
    """Hold a conversation, then verify it and prefill it in turns."""
    text = text_of(tokenizer, TURN_TOKENS - LITERAL_TOKENS)
    answers = [await ask(talk, text, TURN_TOKENS, seed) for seed in range(TURNS)]
    took = sum(answer.usage.first_token_us + answer.usage.decode_us for answer in answers) / 1e6
    last = answers[-1].usage
    speed = Speed(last.prompt_tokens + last.output_tokens, took)
    for number in range(ROUNDS):
        speed.prefilled.append(await prefill_seconds(talk, host))
        verified = await verify(talk, host)
        if verified.receipt.outcome != Outcome.ACCEPTED:
            raise RuntimeError("an honest conversation is not accepted")
        speed.verified.append(verified.seconds)
        say(f"round {number + 1}: {speed.prefilled[-1]:.2f} s, VERIFY {verified.seconds:.2f} s")
    return speed


def tell(liar: Liar, held: Conversation, walk: random.Random) -> dict[EntryId, int | None]:
    """Tell all lies; return the index of each difference, None where it may be any."""
    requests, told = [*held.order.requests], dict[EntryId, int | None]()
    for _ in range(LIES):
        request, index = walk.choice(requests), walk.randrange(TURN_TOKENS)
        token_id = walk.randrange(1000, 40_000)
        honest = held.order.answer(request)
        assert honest is not None
        if honest.token_ids[index] == token_id:
            token_id += 1
        told[liar.answer(request, partial(with_token, index=index, token_id=token_id))] = index
    for number in range(DRAWS):
        request = walk.choice(requests)
        heat = TEMPERATURE if number % 2 else TEMPERATURE + 0.5
        other = Sampling(temperature=heat, seed=10_000 + number if number % 2 else 0)
        told[liar.answer(request, lambda honest: honest, sampling=other)] = None
    return told


def found(verified: Verified, told: dict[EntryId, int | None]) -> tuple[int, int]:
    """Count the changed tokens found at their index, and the other draws found."""
    tokens = draws = 0
    for lie, index in told.items():
        finding = verified.findings[lie]
        is_found = (finding.outcome, finding.cause) == (Outcome.DIFFERS, Cause.TOKEN)
        if index is None:
            draws += is_found
        else:
            tokens += is_found and finding.token_index == index
    return tokens, draws


async def count_other_hosts(talk: Talk, engine: TorchEngine, hosting: Hosting) -> dict[str, int]:
    """Count the answers for which a host with other weights, or another template, says so."""
    others = {
        Cause.OTHER_WEIGHTS: with_other_weights(engine),
        Cause.OTHER_TEMPLATE: with_another_template(engine),
    }
    honest = {talk.held.order.generation_of(request) for request in talk.held.order.seal_of}
    counts = {}
    for cause, other in others.items():
        async with hosting(other) as host:
            verified = await verify(talk, host)
        named = [f.cause == cause for answer, f in verified.findings.items() if answer in honest]
        counts[cause.name] = len(named) - sum(named)
    return counts


async def count_refused_agents(replica: Replica, host: HostServer, tokenizer: Tokenizer) -> int:
    """Let agents talk all at once; count the conversations that are not accepted."""
    prefix, message = text_of(tokenizer, PREFIX_TOKENS), text_of(tokenizer, MESSAGE_TOKENS)

    async def agent(number: int) -> Talk:
        talk = await Talk.begin(replica, host.key)
        for turn in range(AGENT_TURNS):
            text = f"{prefix} {number}" if turn == 0 else message
            await ask(talk, text, OUTPUT_TOKENS, seed=number)
        return talk

    talks = await asyncio.gather(*(agent(number) for number in range(AGENTS)))
    outcomes = [(await verify(talk, host)).receipt.outcome for talk in talks]
    return sum(outcome != Outcome.ACCEPTED for outcome in outcomes)


# --- all together ------------------------------------------------------------------------


async def measure(
    engine: TorchEngine, folder: Path, hub: str
) -> tuple[list[Goal], dict[str, object]]:
    """Measure everything with one hub; the host restarts where it lies."""
    tokenizer = Tokenizer.build(engine.file.tokenizer)
    config = HostConfig(data_dir=folder / "host", hub=hub)
    hosting: Hosting = partial(start_host, config)
    key = Ed25519PrivateKey.generate()
    async with Replica.open(folder / "log.db", key, hub) as replica:
        async with hosting(engine) as host:
            talk = await Talk.begin(replica, host.key)
            speed = await measure_speed(talk, host, tokenizer)
            liar = Liar(replica, talk.held, host.replica.key, host.offer)
            refused = await count_refused_agents(replica, host, tokenizer)
        named = await count_other_hosts(talk, engine, hosting)
        told = tell(liar, talk.held, random.Random(7))
        await liar.publish()
        async with hosting(engine) as host:
            verified = await verify(talk, host)
    tokens, draws = found(verified, told)
    say(f"{tokens} of {LIES} changed tokens and {draws} of {DRAWS} other draws found")
    goals = [
        Goal("time of decoding / VERIFY", speed.decoded / statistics.median(speed.verified), 5.0,
             at_least=True),
        Goal("time of plain prefill / VERIFY", speed.ratio(speed.prefilled), 0.6, at_least=True),
        Goal("changed tokens found at their index", tokens, LIES, at_least=True),
        Goal("answers drawn in another way found", draws, DRAWS, at_least=True),
        Goal("answers not said to have other weights", named["OTHER_WEIGHTS"], 0, at_least=False),
        Goal("answers not said to have another template", named["OTHER_TEMPLATE"], 0,
             at_least=False),
        Goal("honest agents not accepted", refused, 0, at_least=False),
    ]  # fmt: skip
    raw: dict[str, object] = {
        "numerics": engine.numerics,
        "tokens": speed.tokens,
        "decoded_s": speed.decoded,
        "verified_s": speed.verified,
        "prefilled_s": speed.prefilled,
        "lies_s": verified.seconds,
    }
    return goals, raw


def main() -> int:
    """Measure and print the results."""
    flags = arguments(__doc__ or "")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    engine = TorchEngine.load(resolve(MODEL), cache_dir=cache_dir())
    with tempfile.TemporaryDirectory() as name, hub_process(Path(name) / "hub") as hub:
        goals, raw = asyncio.run(measure(engine, Path(name), hub.address))
    return report("replay", goals, raw, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
