"""Run benchmarks, write bench/RESULTS.md and its plots: python -m bench [NAME ...].

Without names it runs all. Each result is written as soon as it is there, and states its
commit; those of benchmarks that did not run stay.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import plots

FOLDER = Path(__file__).parent
BENCHES = (
    "append", "turn_bytes", "resume", "exact", "engine", "turn", "restore", "agents", "fairness",
    "replay", "start", "abuse", "abuse_folds", "abuse_scale", "abuse_hub", "library",
)  # fmt: skip


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


def _vectors(machine: dict[str, Any]) -> str:
    return f" ({machine['vectors']})" if "vectors" in machine else ""


def commit() -> str:
    """Return the measured commit, with a mark if files differ from it, but for results."""
    results = [f":!{FOLDER.name}/{name}" for name in ("RESULTS.md", "results.json", "*.png")]
    changed = _git("status", "--porcelain", "--", ".", *results)
    return _git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write(results: dict[str, dict[str, Any]]) -> None:
    """Write the results, in the order of BENCHES, and draw their plots."""
    known = {name: results[name] for name in BENCHES if name in results}
    parts = [
        "# Results",
        "The machine is shared: ratios count, absolute times don't.",
    ]
    for name, result in known.items():
        machine = result["machine"]
        parts += [
            f"## {name}",
            f"Measured at commit `{result['commit']}` on {machine['cores']} cores of"
            f" {machine['cpu']}{_vectors(machine)}, Python {machine['python']}.",
            table(result),
        ]
        parts += [f"![{name}]({path.name})" for path in plots.draw(name, result, FOLDER)]
    (FOLDER / "RESULTS.md").write_text("\n\n".join(parts) + "\n")
    (FOLDER / "results.json").write_text(json.dumps(known, indent=1) + "\n")


def main(names: list[str]) -> int:
    """Run benchmarks and write the results; return 1 if a goal was missed, 2 for a wrong name."""
    if unknown := [name for name in names if name not in BENCHES]:
        print(
            f"no benchmark: {', '.join(unknown)}; there are {', '.join(BENCHES)}", file=sys.stderr
        )
        return 2
    measured, path = commit(), FOLDER / "results.json"
    results: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    is_met = True
    for name in names or BENCHES:
        results[name] = {"commit": measured, **run(name)}
        write(results)
        is_met &= all(goal["ok"] for goal in results[name]["goals"])
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
