"""What a hub and a client use when they hold much: python -m bench.abuse_scale.

Each figure is CPU time, so that other processes of the machine do not count. Where one
state is compared with another, rounds of both alternate in one run. The short form is a
tenth of each size with a tenth of its bar, where the bar is a time for all of it. The
restart has its full size in both forms: a start reads 5,000 entries in any case.
"""

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time

from bench.abuse_hub import MEMORY_FOLDER, stored
from bench.abuse_scene import HOST, READER, ROLES, WRITER, Scene, scene
from bench.hostile_logs import Pen, Talk, said
from bench.raw_peer import RawPeer, TimedHub, timed_hub
from bench.result import Goal, report, say, sized_parser
from replica.io import Replica
from replica.link import Ack, Entries, Open, SyncState
from replica.log import Role
from replica.order import Order
from replica.testing import Network
from syncd.hub import Hub
from syncd.policy import Policy

ROUNDS, APPENDS = 9, 40
KILL_BEHIND_S = 10.0
"""Time from the last entry to the kill of its hub."""
WAIT_S = 240.0


@dataclass(frozen=True)
class Size:
    """The share of the full sizes, and of the bars that are times for all of it."""

    share: float

    def of(self, full: int) -> int:
        return int(full * self.share)

    def bar(self, full_s: float) -> float:
        return full_s * self.share


def watched_append_ms(size: Size) -> Goal:
    """Measure an append beside one Watch of a long conversation."""
    at = scene(lambda talk, pens: talk.messages(pens[WRITER], size.of(100_000)))
    held = at.hub.shelf[at.talk.id]
    at.frame(at.link(at.pens[READER], watches=True), Open(at.talk.id, held.log.digest))
    at.append_ms()
    return Goal("append with one Watch, ms", at.append_ms(APPENDS), 3.0, False)


def idle_links_ratio(size: Size) -> Goal:
    """Compare an append beside 1,000 links that have nothing open with one beside none."""
    # Of other entries, since a signature that one verified would be known to the other.
    alone = scene(lambda talk, _: talk.messages(talk.owner, 100))
    beside = scene(lambda talk, pens: talk.messages(pens[WRITER], 100))
    for _ in range(size.of(1_000)):
        beside.link(beside.pens[READER])
    pairs = [(_appends_s(alone), _appends_s(beside)) for _ in range(ROUNDS)]
    ratio = median(with_links / without for without, with_links in pairs)
    return Goal(f"append beside {size.of(1_000):,} idle links / none", ratio, 1.2, False)


def _appends_s(at: Scene) -> float:
    link_id = at.link(at.talk.owner)
    entries = []
    for _ in range(APPENDS):
        at.talk.top = at.talk.owner.write(said(), at.talk.top)
        entries.append(at.talk.top)
    began = process_time()
    for entry in entries:
        at.frame(link_id, Entries(at.talk.id, (entry,)))
    took_s = process_time() - began
    at.hub.disconnect(link_id)
    return took_s


def queue_fold_s(size: Size) -> Goal:
    """Measure the fold of queued turns alone, without the admission of their entries."""
    talk = Talk()
    pens = {number: talk.member(number, role) for number, role in ROLES.items()}
    host, seal, listed = pens[HOST], None, []
    for _ in range(size.of(6_000)):
        request = talk.request(host, basis=seal)
        seal = talk.seal(host, request, [*listed, request], prev=seal)
        listed = [talk.answer(host, seal)]
    log = talk.restored().log
    times = []
    for _ in range(3):
        began = process_time()
        Order(log)
        times.append(process_time() - began)
    return Goal(f"fold of {size.of(6_000):,} QUEUE turns, s", median(times), size.bar(0.3), False)


def lanes_opened(size: Size) -> Goal:
    """Say whether a new device has a conversation of 10^4 lanes without waiting for a resync."""
    talk, writers = Talk(), 10
    for number in range(writers):
        pen = talk.member(10 + number, Role.WRITER)
        talk.lanes(pen, size.of(10_000) // writers, said())
    reader = talk.member(READER, Role.READER)
    hub = Hub(Pen(99).public, Policy())
    hub.load(talk.id, talk.entries)
    device = Network(hub).connect(reader.public)
    began = process_time()
    device.open(talk.id)
    took_s = process_time() - began
    is_whole = device.state(talk.id) is SyncState.SYNCHRONIZED
    is_whole &= device.held(talk.id).log.digest == hub.shelf[talk.id].log.digest
    say(f"{size.of(10_000):,} lanes: {took_s:.2f} CPU s for both ends")
    return Goal(f"{size.of(10_000):,} lanes are whole after one exchange", float(is_whole), 1, True)


# --- processes ----------------------------------------------------------------------------


def client_s(size: Size, folder: Path) -> list[Goal]:
    """Measure a client that gets 2,000 conversations, then one that has them all."""
    talks = []
    for number in range(size.of(2_000)):
        talk = Talk(Pen(1_000 + number))
        talk.member(5, Role.WRITER)
        talk.messages(talk.owner, 1)
        talks.append(talk)
    asyncio.run(stored(folder / "hub", *talks))
    with timed_hub(folder / "hub") as hub:
        first = asyncio.run(_synced_s(folder / "mine.db", hub.address, talks))
        again = asyncio.run(_synced_s(folder / "mine.db", hub.address, talks))
    bar = size.bar(6.0)
    return [
        Goal(f"client gets {len(talks):,} conversations, CPU s", first, bar, False),
        Goal(f"client has {len(talks):,} conversations, CPU s", again, bar, False),
    ]


async def _synced_s(path: Path, address: str, talks: list[Talk]) -> float:
    began, until = process_time(), time.monotonic() + WAIT_S
    async with Replica.open(path, Pen(5).key, address, follow=True) as replica:
        for talk in talks:
            while replica.hub.state(talk.id) is not SyncState.SYNCHRONIZED:
                if time.monotonic() > until:
                    raise RuntimeError("the client did not sync in time")
                await asyncio.sleep(0.2)
        return process_time() - began


def restart_s(_size: Size, folder: Path) -> list[Goal]:
    """Measure the start of a hub that holds 10^5 entries, less that of an empty one.

    Its end was a stop, or a kill: some seconds behind the last entry, or as soon as it was durable.
    """
    # One loop for all: a gRPC channel leaves callbacks behind that end with their loop.
    with asyncio.Runner() as runner:
        return _restart_goals(folder, runner)


def _restart_goals(folder: Path, runner: asyncio.Runner) -> list[Goal]:
    entries, goals = 100_000, []
    for name, count in (("one conversation", 1), ("conversations of 100", entries // 100)):
        at = folder / name.replace(" ", "_")
        talks = []
        for number in range(count):
            talk = Talk(Pen(1_000 + number))
            talk.messages(talk.owner, entries // count)
            talks.append(talk)
        runner.run(stored(at, *talks))
        with timed_hub(at) as hub:  # it reads all, and notes what the next one needs
            runner.run(_appended(hub, talks[0]))
            time.sleep(KILL_BEHIND_S)
            hub.process.kill()
        goal = f"with {entries:,} entries in {name}, CPU s"
        killed = [_start_s(folder, at, kill=True) for _ in range(3)]
        goals.append(Goal(f"restart after a kill {goal}", median(killed), 2.0, False))
        stopped = [_start_s(folder, at) for _ in range(4)][1:]  # the first one is after a kill
        goals.append(Goal(f"restart {goal}", median(stopped), 2.0, False))
        with timed_hub(at) as hub:
            runner.run(_appended(hub, talks[0]))
            hub.process.kill()
        behind = [_start_s(folder, at, kill=True) for _ in range(3)]
        goals.append(Goal(f"restart right behind an entry {goal}", median(behind), 2.0, False))
    return goals


def _start_s(folder: Path, at: Path, *, kill: bool = False) -> float:
    """Return the CPU time of one start; its hub ends by a kill, or is stopped."""
    with timed_hub(folder / "empty") as hub:
        empty_s = hub.ready_cpu_s
    with timed_hub(at) as hub:
        if kill:
            hub.process.kill()
        return hub.ready_cpu_s - empty_s


async def _appended(hub: TimedHub, talk: Talk) -> None:
    """Let the owner append once more, and wait until it is durable."""
    peer = await RawPeer(talk.owner, hub.address).enter()
    talk.messages(talk.owner, 1)
    link = await peer.link()
    await link.send(Entries(talk.id, (talk.top,)))
    while not isinstance(message := await link.read(WAIT_S), Ack):
        if message is None:
            raise RuntimeError("the hub did not acknowledge the entry")
    await peer.leave()


IN_PROCESS = (watched_append_ms, idle_links_ratio, queue_fold_s, lanes_opened)
PROCESSES = (client_s, restart_s)


def run(size: Size, names: list[str]) -> list[Goal]:
    """Measure all figures, or those named."""
    found: list[Goal] = []
    for measure in IN_PROCESS:
        if not names or measure.__name__ in names:
            found.append(measure(size))
    for process in PROCESSES:
        if not names or process.__name__ in names:
            with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER) as folder:
                found += process(size, Path(folder))
    return found


def main() -> int:
    """Measure; return 1 if a bar was missed."""
    names = [measure.__name__ for measure in (*IN_PROCESS, *PROCESSES)]
    flags = sized_parser(__doc__ or "", names).parse_args()
    goals = run(Size(1.0 if flags.long else 0.1), flags.names)
    return report("abuse_scale", goals, {}, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
