"""How much does a long prompt delay the runs beside it, and one owner's requests another's?

Four runs decode; then a prompt of 4,000 tokens begins beside them. The time between two
tokens of a run during the prefill is divided by the time before it, in each of several
rounds. Then 32 prompts of one owner begin at once, and a short one of another owner: it is
counted after how many steps the other owner's first token comes.
"""

import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from bench import jobs
from bench.agents import words
from bench.result import Goal, arguments, report, say
from model_host.batching import Job
from model_host.engine.torch_engine import TorchEngine
from model_host.io.fetch import cache_dir, resolve

RUNS = 4
CONTEXT_TOKENS = 128
LONG_TOKENS = 4_000
STEPS_BEFORE = 20
REQUESTS = 32
REQUEST_TOKENS = 300
ROUNDS = 5


def delay(engine: TorchEngine, folder: Path) -> tuple[float, float]:
    """Return the median seconds between two tokens of a run, before and during a prefill."""
    with jobs.host(engine, folder) as host:
        for at in range(RUNS):
            prompt = words(CONTEXT_TOKENS, at)
            host.batcher.add(host.job(prompt, 2_000, conversation=bytes([at]) * 32))
        for _ in range(RUNS + 2):
            host.batcher.step()
        before = [_seconds(host) for _ in range(STEPS_BEFORE)]
        long = host.job(words(LONG_TOKENS, 9), 2, conversation=b"l" * 32, owner=b"p" * 32)
        host.batcher.add(long)
        during: list[float] = []
        while len(long.ids) == LONG_TOKENS:
            during.append(_seconds(host))
        return median(before), median(during)


def _seconds(host: jobs.Host) -> float:
    began = perf_counter()
    host.batcher.step()
    return perf_counter() - began


def steps_until_first(engine: TorchEngine, folder: Path) -> int:
    """Return the number of steps until a single request has its token, behind 32 of another."""
    with jobs.host(engine, folder) as host:
        for at in range(REQUESTS):
            prompt = words(REQUEST_TOKENS, at)
            host.batcher.add(host.job(prompt, 4, conversation=bytes([at + 1]) * 32))
        host.batcher.step()
        single = host.job(words(20, 99), 1, conversation=b"s" * 32, owner=b"p" * 32)
        host.batcher.add(single)
        steps = 0
        while not _has_token(single):
            host.batcher.step()
            steps += 1
        return steps


def _has_token(job: Job) -> bool:
    return bool(job.run.token_ids)


def main() -> int:
    """Measure and print the results."""
    flags = arguments(__doc__ or "")
    engine = TorchEngine.load(resolve("SmolLM2-135M-Instruct"), cache_dir=cache_dir())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rounds = []
        for number in range(ROUNDS):
            before, during = delay(engine, folder)
            rounds.append({"before_s": before, "during_s": during})
            say(f"round {number + 1}: {1e3 * before:.1f} ms, beside a prefill {1e3 * during:.1f}")
        steps = steps_until_first(engine, folder)
    ratio = median(one["during_s"] / one["before_s"] for one in rounds)
    goals = [
        Goal("token interval beside a prefill of 4,000 / without", ratio, 3.0, at_least=False),
        Goal("steps of another owner's request behind 32 requests", steps, 1, at_least=False),
    ]
    raw: dict[str, object] = {"numerics": engine.numerics, "rounds": rounds}
    return report("fairness", goals, raw, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
