"""The output of every benchmark: goals with their bounds, the machine, the raw figures."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Goal:
    """One figure with its bound; `at_least` makes it a lower bound, else it is an upper one."""

    name: str
    value: float
    bar: float
    at_least: bool

    @property
    def ok(self) -> bool:
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def as_json(self) -> dict[str, object]:
        sign = ">=" if self.at_least else "<="
        bar = f"{sign} {self.bar:g}"
        return {"name": self.name, "value": round(self.value, 3), "bar": bar, "ok": self.ok}


_VECTORS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
"""Flags of processors, the first of which tells which kernels of torch a machine runs."""


def machine() -> dict[str, object]:
    """Return the machine and the versions that the figures depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = said.get("flags", "").split()
    return {
        "cpu": said.get("model name", "unknown"),
        "vectors": next((flag for flag in _VECTORS if flag in flags), "none"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def arguments(description: str) -> argparse.Namespace:
    """Read the flags common to all benchmarks."""
    return _parser(description).parse_args()


def sized_parser(description: str, names: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of a benchmark with a short and a long form, and parts of these names."""

    def known(name: str) -> str:
        if name not in names:
            raise argparse.ArgumentTypeError(f"{name!r} is none of: {', '.join(names)}")
        return name

    parser = _parser(description)
    parser.add_argument("--long", action="store_true", help="measure the full sizes too")
    parser.add_argument("names", nargs="*", type=known, help="what to measure; all by default")
    return parser


def _parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    return parser


def say(text: str) -> None:
    """Print progress on stderr, since stdout is data."""
    print(text, file=sys.stderr, flush=True)


def report(bench: str, goals: list[Goal], raw: dict[str, object], *, json_only: bool) -> int:
    """Print the goals as text and the JSON line; return 1 if a goal was missed."""
    if not json_only:
        for goal in goals:
            mark = "ok  " if goal.ok else "MISS"
            print(f"{mark} {goal.name}: {goal.value:.3f} (bar {goal.as_json()['bar']})")
    line = {"bench": bench, "machine": machine(), "goals": [g.as_json() for g in goals], **raw}
    print(json.dumps(line))
    return 0 if all(goal.ok for goal in goals) else 1
