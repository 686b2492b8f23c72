"""Run all benchmarks, write bench/RESULTS.md and its plots: python -m bench."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import plots

FOLDER = Path(__file__).parent
BENCHES = ("append", "turn_bytes", "resume")


def run(name: str) -> dict[str, Any]:
    """Run one benchmark in its own process; return its JSON line."""
    print(f"bench {name}", file=sys.stderr)
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}", "--json"],
        check=False,  # a missed goal is reported, not raised
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise RuntimeError(f"bench {name} printed nothing and ended with {done.returncode}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def table(result: dict[str, Any]) -> str:
    """Return the goals of one benchmark as a Markdown table."""
    rows = ["| goal | value | bar | |", "|---|---|---|---|"]
    for goal in result["goals"]:
        mark = "met" if goal["ok"] else "**missed**"
        rows.append(f"| {goal['name']} | {goal['value']:g} | {goal['bar']} | {mark} |")
    return "\n".join(rows)


def commit() -> str:
    """Return the measured commit, with a mark if files differ from it."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Run all benchmarks and write the results; return 1 if a goal was missed."""
    measured = commit()
    results = {name: run(name) for name in BENCHES}
    machine = results["append"]["machine"]
    parts = [
        "# Results",
        f"Measured at commit `{measured}` on {machine['cores']} cores of {machine['cpu']}, "
        f"Python {machine['python']}. The machine is shared: ratios count, absolute times don't.",
    ]
    for name, result in results.items():
        parts += [f"## {name}", table(result)]
        parts += [f"![{name}]({path.name})" for path in plots.draw(name, result, FOLDER)]
    (FOLDER / "RESULTS.md").write_text("\n\n".join(parts) + "\n")
    (FOLDER / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(goal["ok"] for r in results.values() for goal in r["goals"]) else 1


if __name__ == "__main__":
    sys.exit(main())
