"""What one peer can cost a real hub, and its other members: attacks over gRPC.

Each attack is measured at n = 10^2 and 10^4 (10^5 with `--long`) entries of the
conversation: the hub's CPU time of one frame and the longest step of its loop, then a
flood of such frames for some seconds, with its CPU time per MB, the growth of the hub's
memory, and the appends of another member beside it: idle and attacked rounds alternate.
At last all attacks at once, within the memory that a hub allows all peers.

Of line 12 of the list of defects it shows ids in pieces, pending entries, answers never read, and
small blobs; bench/abuse_memory.py shows what a hub's core keeps of lists of ids and of drafts.
Silent and half-open uploads, and many conversations of one key, are in tests/syncd/ alone.
"""

import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from antiphon.v1 import sync_pb2 as pb
from bench.hostile_attacks import ATTACKS, NEIGHBOUR, Attack, Stage, grown, messages
from bench.hostile_logs import Pen, Talk, said
from bench.raw_peer import Figures, RawLink, RawPeer, TimedHub, timed_hub
from bench.result import Goal, report, say, sized_parser
from replica.io import Store
from replica.limits import MEMORY_BYTES_MAX
from replica.link import Ack, Entries
from replica.log import Entry, entry_to_pb

SIZES, LONG = (100, 10_000), 100_000
HOLD_MS, CPU_S_PER_MB, MEMORY_RATIO, APPEND_RATIO, GROWTH = 20.0, 2.0, 8.0, 2.0, 1.5
FLOOR_MS, APPEND_FLOOR_MS = 1.0, 10.0
"""Times below these count as these: less is no difference on a shared machine."""
MEMORY_FLOOR_BYTES = 16 << 20
"""Growth of memory that the allocator and gRPC's buffers may have in any case."""
MEMORY_FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""The disk is not measured, where there is a file system in memory."""
PROBES, ROUNDS, IDLE_S = 11, 3, 1.0
ROUNDS_AT_ONCE = 9
"""Rounds of all attacks at once, where appends take unequal times: of 3 rounds the 99th percentile
is the second of some 170, and was 1.9 and 4.1 times the idle one in two runs of one commit."""
ATTACKER_NICE = 10
"""The attacker has a lower priority than hub and neighbour: it would be another machine."""
ALL_AT_ONCE = "all at once"

Times = dict[str, list[tuple[float, float]]]
"""Of appends by way, in ms: the time elapsed, and the hub's CPU time meanwhile."""


@dataclass
class Row:
    """One attack at one size."""

    attack: str
    line: int
    n: int
    frame_ms: float = 0.0
    """CPU time of the hub for one frame."""
    answer_bytes: float = 0.0
    """Bytes that answer one frame."""
    hold_ms: float = 0.0
    """Longest step of the loop, alone or in the flood."""
    step: str = ""
    collection_ms: float = 0.0
    """Longest pass of the garbage collector."""
    rounds: int = ROUNDS
    flood_cpu_s: float = 0.0
    flood_bytes: int = 0
    grown_bytes: int = 0
    descriptors: int = 0
    idle_p99_ms: dict[str, float] = field(default_factory=dict)
    """Time of another member's append, by the way that it takes."""
    beside_p99_ms: dict[str, float] = field(default_factory=dict)
    idle_cpu_p99_ms: dict[str, float] = field(default_factory=dict)
    """CPU time of the hub from an append to its answer, with all that it did meanwhile."""
    beside_cpu_p99_ms: dict[str, float] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)

    def growth(self, smallest: "Row") -> float:
        """Return the growth of a frame's CPU time from the smallest size.

        An answer that is the log itself has more entries there, up to the credit of a link: what
        is sent is paid by its reader (LIM-8), so the growth is that per byte answered.
        """
        longer = max(1.0, self.answer_bytes / max(1.0, smallest.answer_bytes))
        return max(FLOOR_MS, self.frame_ms / longer) / max(FLOOR_MS, smallest.frame_ms)

    @property
    def cpu_per_mb(self) -> float:
        """CPU seconds per MB of the flood, of at least one MB a round."""
        return self.flood_cpu_s / max(self.rounds, self.flood_bytes / 1e6)


# --- another member ---------------------------------------------------------------------


def _cpu_ms(pid: int) -> float:
    """Return the CPU time of another process."""
    return 1_000 * time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid has it


async def _append_by_push(writer: RawPeer, _link: RawLink, entry: Entry) -> None:
    data = pb.PushRequest(
        conversation=entry.conversation, entries=[entry_to_pb(entry)]
    ).SerializeToString()
    if await writer.call("SyncService/Push", data) is None:
        raise RuntimeError(f"the hub refused another member: {writer.reasons}")


async def _append_by_link(_writer: RawPeer, link: RawLink, entry: Entry) -> None:
    await link.send(Entries(entry.conversation, (entry,)))
    while not isinstance(message := await link.read(), Ack | None):
        pass  # a Credit
    if message is None:
        raise RuntimeError("the hub ended the link of another member")


WAYS = {"Push": _append_by_push, "link": _append_by_link}
"""As a client without a log appends, and as a replica does."""


def _append_beside(hub: TimedHub, talk: Talk, pen: Pen, pipe: Any) -> None:
    """Append as a writer whenever asked, in a process of its own; answer with the times."""

    async def run() -> None:
        writer = await RawPeer(pen, hub.address).enter()
        link = await writer.link()
        await link.ping()
        while (seconds := await asyncio.to_thread(pipe.recv)) is not None:
            times: Times = {way: [] for way in WAYS}
            until, ways = time.monotonic() + seconds, cycle(WAYS.items())
            while time.monotonic() < until or len(times["link"]) < 5:
                way, append = next(ways)
                entry = pen.write(said(), talk.top)
                began, cpu_began = time.perf_counter(), _cpu_ms(hub.process.pid)
                await append(writer, link, entry)
                cpu_ms = _cpu_ms(hub.process.pid) - cpu_began
                times[way].append((1_000 * (time.perf_counter() - began), cpu_ms))
                await asyncio.sleep(0.01)
            pipe.send(times)

    asyncio.run(run())


class Neighbour:
    """Another member, whose appends are timed."""

    def __init__(self, hub: TimedHub, stage: Stage) -> None:
        """Start its process."""
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_append_beside, args=(hub, stage.talk, stage.pens[NEIGHBOUR], theirs)
        )
        self._process.start()
        theirs.close()

    def begin(self, seconds: float) -> None:
        """Begin to append for some seconds."""
        self._pipe.send(seconds)

    async def times(self) -> Times:
        """Return the times of the appends that were begun."""
        found: Times = await asyncio.to_thread(self._pipe.recv)
        return found

    def end(self) -> None:
        """End its process."""
        self._pipe.send(None)
        self._process.join(5.0)
        self._process.kill()
        self._process.join()
        self._process.close()
        self._pipe.close()


def p99s(rounds: list[Times]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the 99th percentiles by way, of the times elapsed and of the hub's CPU times."""
    elapsed, cpu = {}, {}
    for way in WAYS:
        together = [both for times in rounds for both in times[way]]
        elapsed[way], cpu[way] = (
            quantiles(each, n=100)[98] for each in zip(*together, strict=True)
        )
    return elapsed, cpu


# --- one attack --------------------------------------------------------------------------


async def stored(folder: Path, *talks: Talk) -> None:
    """Make the folder of a hub that holds conversations."""
    await asyncio.to_thread((folder / "log").mkdir, parents=True)
    async with await Store.open(folder / "log" / "log.db") as store:
        entries = [entry for talk in talks for entry in talk.entries]
        for at in range(0, len(entries), 1_000):
            await store.append(entries[at : at + 1_000])


async def _probe(attack: Attack, stage: Stage, hub: TimedHub, row: Row, probes: int) -> None:
    """Measure single frames, each with the work that it leaves."""
    link = await stage.peer.link()
    await link.ping()
    costs, answers = [], []
    for frame in attack.frames(stage, probes):
        before, received = hub.figures(), stage.peer.received_bytes
        await link.write(frame)
        is_up = await link.ping()
        after = hub.figures()
        costs.append(1_000 * (after.cpu_s - before.cpu_s))
        answers.append(stage.peer.received_bytes - received)
        _note_hold(row, after)
        if not is_up:
            link = await stage.peer.link()
    if costs:
        row.frame_ms, row.answer_bytes = median(costs), median(answers)
    link.end()


def _note_hold(row: Row, figures: Figures) -> None:
    if figures.hold_ms > row.hold_ms:
        row.hold_ms, row.step = figures.hold_ms, figures.step
    row.collection_ms = max(row.collection_ms, figures.collection_ms)


async def _attack(
    row: Row,
    hub: TimedHub,
    neighbour: Neighbour,
    stages: list[tuple[Attack, Stage]],
    seconds: float,
) -> None:
    """Alternate idle and attacked rounds, each with the appends of another member."""
    os.nice(ATTACKER_NICE)
    idle, beside = list[Times](), list[Times]()
    started = hub.figures()
    _note_hold(row, started)
    for _ in range(row.rounds):
        neighbour.begin(min(IDLE_S, seconds))
        idle.append(await neighbour.times())
        before, until = hub.figures(), time.monotonic() + seconds
        _note_hold(row, before)
        sent = sum(stage.peer.sent_bytes for _, stage in stages)
        neighbour.begin(seconds)
        await asyncio.gather(*(attack.flood(stage, until) for attack, stage in stages))
        beside.append(await neighbour.times())
        after = hub.figures()
        _note_hold(row, after)
        row.flood_cpu_s += after.cpu_s - before.cpu_s
        row.flood_bytes += sum(stage.peer.sent_bytes for _, stage in stages) - sent
    row.idle_p99_ms, row.idle_cpu_p99_ms = p99s(idle)
    row.beside_p99_ms, row.beside_cpu_p99_ms = p99s(beside)
    row.grown_bytes, row.descriptors = after.rss_bytes - started.rss_bytes, after.descriptors
    for _, stage in stages:
        row.answers |= stage.peer.reasons
        await stage.peer.leave()
    neighbour.end()


async def measure(attack: Attack, probes: int, n: int, seconds: float, folder: Path) -> Row:
    """Measure one attack over a conversation that was grown to n."""
    row = Row(attack.name, attack.line, n)
    stage = grown(attack, n)
    await stored(folder, stage.talk)
    with timed_hub(folder) as hub:
        neighbour = Neighbour(hub, stage)  # a fork, before this process uses gRPC
        hub.figures()
        stage.peer = await RawPeer(stage.pens[attack.by], hub.address).enter()
        await _probe(attack, stage, hub, row, probes)
        await _attack(row, hub, neighbour, [(attack, stage)], seconds)
    return row


async def measure_all(n: int, seconds: float, folder: Path) -> Row:
    """Measure all floods at once, each from a connection of its own."""
    row = Row(ALL_AT_ONCE, 12, n, rounds=ROUNDS_AT_ONCE)
    mixed = [attack for attack in ATTACKS if attack.grow is messages]
    stage = grown(mixed[0], n)
    await stored(folder, stage.talk)
    with timed_hub(folder) as hub:
        neighbour, stages = Neighbour(hub, stage), []
        for attack in mixed:
            peer = await RawPeer(stage.pens[attack.by], hub.address).enter()
            stages.append((attack, replace(stage, peer=peer)))
        await _attack(row, hub, neighbour, stages, seconds)
    return row


def _in_process(job: Callable[..., Coroutine[None, None, Row]], n: int, seconds: float) -> Row:
    """Measure in a process of its own, whose priority no later one inherits."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def work() -> None:
        with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER) as name:
            theirs.send(asyncio.run(job(n, seconds, Path(name) / "hub")))

    process = context.Process(target=work)
    process.start()
    theirs.close()
    try:
        row: Row = ours.recv()
    finally:
        process.join()
    return row


def run(
    names: list[str], sizes: tuple[int, ...], seconds: float, probes: int = PROBES
) -> Iterator[Row]:
    """Run the attacks, each at all sizes."""
    jobs: list[tuple[str, Callable[..., Coroutine[None, None, Row]]]]
    jobs = [(attack.name, partial(measure, attack, probes)) for attack in ATTACKS]
    jobs.append((ALL_AT_ONCE, measure_all))
    for attack_name, job in jobs:
        if names and attack_name not in names:
            continue
        for n in sizes:
            row = _in_process(job, n, seconds)
            say(
                f"{row.line:3} {row.attack:26} n={n:<6} {row.frame_ms:8.2f} ms/frame, "
                f"{row.answer_bytes:.0f} B answered, "
                f"hold {row.hold_ms:7.1f} ms (gc {row.collection_ms:.0f})  "
                f"{row.cpu_per_mb:5.2f} s/MB ({row.flood_cpu_s:.2f} s, "
                f"{row.flood_bytes / 1e6:.2f} MB)  +{row.grown_bytes / 1e6:.0f} MB  "
                f"{row.answers}"
            )
            for way in WAYS:
                say(
                    f"      append by {way} {row.idle_p99_ms[way]:.0f} -> "
                    f"{row.beside_p99_ms[way]:.0f} ms (hub's CPU "
                    f"{row.idle_cpu_p99_ms[way]:.0f} -> {row.beside_cpu_p99_ms[way]:.0f})"
                )
            if row.hold_ms > HOLD_MS:
                say(f"      {row.step}")
            yield row


def goals(rows: list[Row]) -> list[Goal]:
    """Return the bars."""
    found = []
    by_attack: dict[str, list[Row]] = {}
    for row in rows:
        by_attack.setdefault(row.attack, []).append(row)
    for name, of_it in by_attack.items():
        most = of_it[-1]
        memory = max(0, most.grown_bytes - MEMORY_FLOOR_BYTES) / max(1, most.flood_bytes)
        if name == ALL_AT_ONCE:
            grown_mb = most.grown_bytes / 1e6
            found.append(Goal(f"{name}: memory, MB", grown_mb, MEMORY_BYTES_MAX / 1e6, False))
        found += [
            Goal(f"{name}: longest step, ms", most.hold_ms, HOLD_MS, False),
            Goal(f"{name}: CPU s per MB (1 MB a round at least)", most.cpu_per_mb,
                 CPU_S_PER_MB, False),
            Goal(f"{name}: memory per byte (beyond 16 MiB)", memory, MEMORY_RATIO, False),
            Goal(f"{name}: growth of a frame (of 1 ms at least)", most.growth(of_it[0]),
                 GROWTH, False),
        ]  # fmt: skip
        idle = f"idle (of {APPEND_FLOOR_MS:.0f} ms at least)"
        for way in WAYS:
            idle_ms, idle_cpu_ms = most.idle_p99_ms[way], most.idle_cpu_p99_ms[way]
            elapsed = most.beside_p99_ms[way] / max(APPEND_FLOOR_MS, idle_ms)
            cpu = most.beside_cpu_p99_ms[way] / max(APPEND_FLOOR_MS, idle_cpu_ms)
            found += [
                Goal(f"{name}: p99 of appends by {way} / {idle}", elapsed, APPEND_RATIO, False),
                Goal(f"{name}: p99 of the hub's CPU for those", cpu, APPEND_RATIO, False),
            ]
    return found


def main() -> int:
    """Run all attacks, or those named; return 1 if a bar was missed."""
    parser = sized_parser(__doc__ or "", [*(one.name for one in ATTACKS), ALL_AT_ONCE])
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a flood")
    parser.add_argument("--sizes", type=int, nargs="*", help="other sizes")
    flags = parser.parse_args()
    sizes = tuple(flags.sizes) if flags.sizes else (*SIZES, LONG) if flags.long else SIZES
    rows = list(run(flags.names, sizes, flags.seconds))
    raw = {"rows": [vars(row) for row in rows]}
    return report("abuse_hub", goals(rows), raw, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
