"""How long does a model host take from process start to ready?

The default model with a warm weights cache, a running hub, and a kept verdict of the
self-test: the canary alone runs. Beside it the first start, which converts the weights and
tests the shapes, in a cache folder of its own.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.hub_process import hub_process
from bench.result import Goal, arguments, report, say
from model_host.io.fetch import MODELS, path_of

ROUNDS = 5
BAR_S = 2.5
NUMERICS = ("bf16", "q4")


def seconds_to_ready(hub: str, data_dir: Path, cache: Path, numerics: str) -> tuple[float, float]:
    """Start a host, wait for its ready line, end it; return wall and CPU seconds up to it."""
    command = [
        *(sys.executable, "-m", "model_host", "serve", "--hub", hub),
        *("--data-dir", str(data_dir), "--numerics", numerics),
    ]
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        env=os.environ | {"ANTIPHON_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        seconds = time.perf_counter() - began
        if not ready.startswith("host "):
            raise RuntimeError(f"the host ended with {process.wait()} before it was ready")
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    finally:
        process.terminate()
        process.wait()
    return seconds, cpu


def copy_of_models(folder: Path) -> Path:
    """Return a cache folder that has the models and nothing computed from them."""
    (folder / "models").mkdir(parents=True)
    for model in MODELS:
        (folder / "models" / model.file_name).symlink_to(path_of(model))
    return folder


def main() -> int:
    """Measure the first start and ROUNDS warm ones of each numerics."""
    flags = arguments(__doc__ or "")
    raw: dict[str, object] = {}
    goals = []
    with (
        tempfile.TemporaryDirectory() as name,
        hub_process(Path(name) / "hub") as hub,
    ):
        cache = copy_of_models(Path(name) / "cache")
        for numerics in NUMERICS:
            folder = Path(name) / numerics
            first = seconds_to_ready(hub.address, folder, cache, numerics)
            warm = []
            for number in range(ROUNDS):
                warm.append(seconds_to_ready(hub.address, folder, cache, numerics))
                wall, cpu = warm[-1]
                say(f"{numerics}, round {number + 1}: {wall:.2f} s, {cpu:.2f} of them on a CPU")
            raw[numerics] = {
                "first_s": first[0],
                "warm_s": [wall for wall, _ in warm],
                "warm_cpu_s": [cpu for _, cpu in warm],
            }
            median = statistics.median(wall for wall, _ in warm)
            goals.append(Goal(f"start to ready, {numerics}, s", median, BAR_S, at_least=False))
    return report("start", goals, raw, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
