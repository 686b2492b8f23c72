"""What do 16 agents of one owner on a shared prefix cost, all at once?

A prefix of 2,000 tokens, ten turns each: a message of 20 tokens, 30 tokens out. All agents take
each turn together. Beside it: one agent alone, and the same with reuse off. The batcher is
driven without a hub, so that only computing is measured.
"""

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

from bench import jobs
from bench.result import Goal, arguments, report, say
from model_host.batching import Chosen, Found, Job
from model_host.engine.torch_engine import TorchEngine
from model_host.io.fetch import cache_dir, resolve
from replica.log import Sampling

AGENTS = 16
TURNS = 10
PREFIX_TOKENS = 2_000
MESSAGE_TOKENS = 20
OUTPUT_TOKENS = 30
ROUNDS = 3
SLACK_TOKENS = 512
"""Tokens of memory allowed per agent beyond its own: a slab is used by one tail."""


@dataclass
class Cost:
    """What some agents cost in all."""

    seconds: float = 0.0
    output_tokens: int = 0
    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    kv_bytes_most: int = 0
    contexts: list[int] = field(default_factory=list)
    """The tokens of each agent's last context."""

    @property
    def per_s(self) -> float:
        """Output tokens per second of all agents together."""
        return self.output_tokens / self.seconds


def words(count: int, seed: int) -> list[int]:
    """Return ids of plain words."""
    return [1000 + (7919 * (i + 31 * seed)) % 40_000 for i in range(count)]


def run(engine: TorchEngine, folder: Path, agents: int, *, reuse: bool) -> Cost:
    """Let agents take their turns together; without `reuse` each turn finds nothing."""
    cost = Cost()
    contexts = {agent: words(PREFIX_TOKENS, 0) for agent in range(agents)}
    with jobs.host(engine, folder) as host:
        for turn in range(TURNS):
            runs: dict[Job, int] = {}
            for agent, context in contexts.items():
                ids = context + words(MESSAGE_TOKENS, 1 + turn * AGENTS + agent)
                conversation = agent.to_bytes(32, "little")
                sampling = Sampling(temperature=0.8, seed=agent)
                job = host.job(ids, OUTPUT_TOKENS, conversation=conversation, sampling=sampling)
                if not reuse:
                    job.domain = (turn * AGENTS + agent).to_bytes(32, "little")
                    job.namespace = job.domain
                runs[job] = agent
            take_turn(host, runs, cost)
            for job, agent in runs.items():
                contexts[agent] = job.ids
    cost.contexts = [len(ids) for ids in contexts.values()]
    return cost


def take_turn(host: jobs.Host, runs: dict[Job, int], cost: Cost) -> None:
    """Compute one turn of all agents, and add its cost."""
    for job in runs:
        host.batcher.add(job)
    began = perf_counter()
    while not host.batcher.is_idle:
        for job, event in host.batcher.step():
            match event:
                case Found(cached, restored, shared):
                    prompt = len(job.run.plan.prompt)
                    cost.prompt_tokens += prompt
                    cost.prefilled_tokens += prompt - cached - restored - shared
                case Chosen():
                    cost.output_tokens += 1
                case _:
                    pass
        cost.kv_bytes_most = max(cost.kv_bytes_most, host.pool.used_bytes)
    cost.seconds += perf_counter() - began


def main() -> int:
    """Measure and print the results."""
    flags = arguments(__doc__ or "")
    engine = TorchEngine.load(resolve("SmolLM2-135M-Instruct"), cache_dir=cache_dir())
    rounds: list[dict[str, Cost]] = []
    with tempfile.TemporaryDirectory() as name:
        for number in range(ROUNDS):
            folder = Path(name) / str(number)
            rounds.append(
                {
                    "together": run(engine, folder, AGENTS, reuse=True),
                    "alone": run(engine, folder, 1, reuse=True),
                    "without reuse": run(engine, folder, AGENTS, reuse=False) if number == 0
                    else rounds[0]["without reuse"],
                }
            )  # fmt: skip
            found = {who: f"{cost.per_s:.0f} tok/s" for who, cost in rounds[-1].items()}
            say(f"round {number + 1}: {found}")
    together = rounds[0]["together"]
    own = sum(tokens - PREFIX_TOKENS for tokens in together.contexts)
    allowed = (PREFIX_TOKENS + own + AGENTS * SLACK_TOKENS) * engine.memory.bytes_per_token
    speedup = median(r["together"].per_s / r["alone"].per_s for r in rounds)
    goals = [
        Goal("prefilled / prompt tokens", together.prefilled_tokens / together.prompt_tokens, 0.05,
             at_least=False),
        Goal("KV memory / (prefix once + own + 512 tokens per agent)",
             together.kv_bytes_most / allowed, 1.3, at_least=False),
        Goal("tokens per second of 16 agents / of one alone", speedup, 2.5, at_least=True),
    ]  # fmt: skip
    raw: dict[str, object] = {
        "numerics": engine.numerics,
        "rounds": [
            {
                who: {
                    "tok_per_s": cost.per_s,
                    "prompt_tokens": cost.prompt_tokens,
                    "prefilled_tokens": cost.prefilled_tokens,
                    "kv_bytes_most": cost.kv_bytes_most,
                }
                for who, cost in costs.items()
            }
            for costs in rounds
        ],
    }
    return report("agents", goals, raw, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
