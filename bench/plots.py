"""The plots of bench/RESULTS.md."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # the backend is chosen first


def draw(name: str, result: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the plot of one benchmark; return the files written."""
    draws: dict[str, Callable[[Any, dict[str, Any]], None]] = {
        "append": _append,
        "turn_bytes": _turn_bytes,
        "resume": _resume,
    }
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
