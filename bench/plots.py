"""The plots of bench/RESULTS.md."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any


def draw(name: str, result: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the plot of one benchmark; return the files written: none without a plot."""
    draws: dict[str, Callable[[Any, dict[str, Any]], None]] = {
        "append": _append,
        "turn_bytes": _turn_bytes,
        "resume": _resume,
        "engine": _engine,
        "turn": _turn,
        "agents": _agents,
    }
    if name not in draws:
        return []
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # the backend is chosen first

    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    draws[name](axes, result)
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return [path]


def _append(axes: Any, result: dict[str, Any]) -> None:
    slow, plain = result["appends_per_s_slow_fsync"], result["appends_per_s"]
    rows = {
        "1 client, fsync + 3 ms": slow["1"],
        "32 clients, fsync + 3 ms": slow["32"],
        "1 client": plain["1"],
        "32 clients": plain["32"],
        "32 clients over links": result["appends_over_links_per_s"]["32"],
        "32 clients, empty call": result["empty_calls_per_s"],
    }
    axes.barh(list(rows), list(rows.values()))
    axes.invert_yaxis()
    axes.set_xlabel("durable appends (or calls) per second")


def _turn_bytes(axes: Any, result: dict[str, Any]) -> None:
    turns = range(1, len(result["antiphon"]["up"]) + 1)
    axes.plot(turns, result["chat"]["up"], label="chat completions, client to server")
    axes.plot(turns, result["antiphon"]["up"], label="antiphon, client to hub")
    axes.plot(turns, result["antiphon"]["down"], label="antiphon, hub to client")
    axes.set_yscale("log")
    axes.set_xlabel("turn")
    axes.set_ylabel("bytes at the socket")
    axes.legend()


def _resume(axes: Any, result: dict[str, Any]) -> None:
    sizes = list(result["resume"])
    restored = [result["resume"][s]["ttft_restored_s"] for s in sizes]
    computed = [result["resume"][s]["ttft_reprefill_s"] for s in sizes]
    places = range(len(sizes))
    axes.bar([p - 0.2 for p in places], computed, 0.4, label="computed from the log")
    axes.bar([p + 0.2 for p in places], restored, 0.4, label="restored from a checkpoint")
    axes.set_xticks(list(places), [f"{s} tokens" for s in sizes])
    axes.set_yscale("log")
    axes.set_ylabel("seconds to the first token")
    axes.legend()


def _engine(axes: Any, result: dict[str, Any]) -> None:
    decodes = {case: ms for case, ms in result["ms"].items() if case.startswith("decode")}
    programs = sorted({program for ms in decodes.values() for program in ms})
    for program in programs:
        cases = [case for case in decodes if program in decodes[case]]
        axes.plot(cases, [decodes[case][program] for case in cases], marker="o", label=program)
    axes.set_ylabel("ms per step")
    axes.tick_params(axis="x", labelrotation=20)
    axes.legend()


def _turn(axes: Any, result: dict[str, Any]) -> None:
    turns = result["turns"][result["best"]]
    names = list(turns)
    first = [median(turn["first_s"] for turn in turns[name]) for name in names]
    last = [median(turn["last_s"] for turn in turns[name]) for name in names]
    axes.barh(names, last, label="last token")
    axes.barh(names, first, label="first token")
    axes.invert_yaxis()
    axes.set_xlabel("seconds from the request")
    axes.legend()


def _agents(axes: Any, result: dict[str, Any]) -> None:
    rounds = result["rounds"]
    names = list(rounds[0])
    axes.barh(names, [median(one[name]["tok_per_s"] for one in rounds) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("output tokens per second")
