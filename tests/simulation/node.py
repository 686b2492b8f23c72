"""A process with a disk: performs effects in order, and may die between any two."""

from collections.abc import Callable, Iterable
from random import Random

from replica.log.entry import Entry
from tests.simulation.clock import Clock
from tests.simulation.disk import Disk
from tests.simulation.mix import Mix
from tests.simulation.network import Network
from tests.simulation.oracle import Oracle

Step = Callable[[], None]


class Crashed(Exception):
    """The process died between two effects."""


class Node:
    """What persons, hosts and the hub have in common: group commit, crash, restart."""

    role = ""

    def __init__(self, name: str, clock: Clock, network: Network, oracle: Oracle) -> None:
        self.name = name
        self.clock = clock
        self.network = network
        self.oracle = oracle
        self.disk = Disk()
        self.is_alive = False
        self.life = 0
        self.crashes_left = 0
        self._queue: list[tuple[tuple[Entry, ...], list[Step]]] = []
        self._flush_due = False

    @property
    def mix(self) -> Mix:
        return self.network.mix

    @property
    def random(self) -> Random:
        return self.network.random

    @property
    def has_work(self) -> bool:
        return bool(self._queue)

    def trace(self, line: str) -> None:
        self.clock.trace(f"{self.name}: {line}")

    def later(self, delay_s: float, event: Step) -> None:
        """Run `event` unless this life has ended by then."""
        life = self.life
        self.clock.after(delay_s, lambda: event() if life == self.life and self.is_alive else None)

    def submit(self, persist: Iterable[Entry], steps: list[Step]) -> None:
        """Queue effects; what waits together becomes durable together, then is performed."""
        self._queue.append((tuple(persist), steps))
        if not self._flush_due:
            self._flush_due = True
            self.later(self.mix.commit_s, self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        batch, self._queue = self._queue, []
        try:
            for persist, _ in batch:
                for entry in persist:
                    self._maybe_crash()
                    self.disk.write(entry)
                    self.oracle.durable(self.name, entry)
            for _, steps in batch:
                for step in steps:
                    self._maybe_crash()
                    step()
        except Crashed:
            self.crash()

    def _maybe_crash(self) -> None:
        may_crash = self.role in self.mix.crash_targets and self.crashes_left > 0
        if may_crash and self.network.roll(self.mix.crash):
            self.crashes_left -= 1
            raise Crashed
        if not self.is_alive:
            raise Crashed  # an event of this batch was the end

    def crash(self, *, down_s: float | None = None) -> None:
        """Lose memory and what was not yet performed; the disk stays. Restarts later."""
        if not self.is_alive:
            return
        self.trace("crash")
        self.is_alive = False
        self.life += 1
        self._queue.clear()
        self._flush_due = False
        self.forget_memory()
        down_s = self.random.choice((0.01, 1.0, 8.0)) if down_s is None else down_s
        life = self.life
        self.clock.after(down_s, lambda: self.start() if life == self.life else None)

    def start(self) -> None:
        """Come to life from the disk."""
        if not self.is_alive:
            self.trace(f"start with {len(self.disk.entries)} entries")
            self.is_alive = True
            self.restore()

    def forget_memory(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError
