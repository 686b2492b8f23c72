"""A process with a disk: performs effects in order, and may crash between any two."""

from collections.abc import Callable, Iterable
from random import Random

from replica.commits import Commits, Conversations, Work
from replica.ids import ConversationId
from replica.log.entry import Entry
from tests.simulation.clock import Clock
from tests.simulation.disk import Disk
from tests.simulation.mix import Mix
from tests.simulation.network import Network
from tests.simulation.oracle import Oracle

Step = Callable[[], None]
Steps = list[tuple[ConversationId | None, Step]]
"""The steps after a commit, each with the conversation it concerns."""


class Crashed(Exception):
    """The process crashed between two effects."""


class Node:
    """The common part of persons, hosts and the hub: group commit, crash, restart."""

    role = ""

    def __init__(self, name: str, clock: Clock, network: Network, oracle: Oracle) -> None:
        self.name = name
        self.clock = clock
        self.network = network
        self.oracle = oracle
        self.disk = Disk()
        self.is_alive = False
        self.incarnation = 0
        self.crashes_left = 0
        self.refusals_left = 0
        self.commits: Commits[Steps] = Commits()
        self._is_committing = False

    @property
    def mix(self) -> Mix:
        return self.network.mix

    @property
    def random(self) -> Random:
        return self.network.random

    @property
    def has_work(self) -> bool:
        return bool(self.commits)

    def trace(self, line: str) -> None:
        self.clock.trace(f"{self.name}: {line}")

    def later(self, delay_s: float, event: Step) -> None:
        """Run `event` unless this incarnation has ended by then."""
        incarnation = self.incarnation
        self.clock.after(
            delay_s, lambda: event() if incarnation == self.incarnation and self.is_alive else None
        )

    def submit(self, persist: Iterable[Entry], about: Conversations | None, steps: Steps) -> None:
        """Queue effects; all queued entries are committed together, then steps are performed."""
        self.commits.submit(Work(tuple(persist), about, steps))
        if not self._is_committing:
            self._is_committing = True
            self.later(self.mix.commit_s / 2, self._begin)

    def _begin(self) -> None:
        entries = self.commits.begin()
        if entries and self._disk_refuses():
            self.later(self.mix.commit_s / 2, self._refuse)
            return
        try:
            for entry in entries:
                self._maybe_crash()
                self.disk.write(entry)
                self.oracle.stores.durable(self.name, entry)
                self.oracle.hosts.durable(self.name, entry)
        except Crashed:
            self.crash()
            return
        self.later(self.mix.commit_s / 2, self._complete)

    def _complete(self) -> None:
        self._perform(self.commits.complete(), frozenset())

    def _refuse(self) -> None:
        refused = self.commits.refuse()
        self.trace(f"the disk refuses {len(refused.work)} works")
        try:
            self.undo(refused.lost)
        except Crashed:
            self.crash()
            return
        self._perform(refused.work, refused.lost)

    def _perform(self, done: tuple[Work[Steps], ...], lost: Conversations) -> None:
        try:
            for work in done:
                for conversation, step in work.payload:
                    if conversation not in lost:
                        self._maybe_crash()
                        step()
        except Crashed:
            self.crash()
            return
        self._is_committing = bool(self.commits)
        if self._is_committing:
            self.later(self.mix.commit_s / 2, self._begin)

    def _disk_refuses(self) -> bool:
        refuses = self.refusals_left > 0 and self.network.roll(self.mix.refuse)
        self.refusals_left -= refuses
        return refuses

    def _maybe_crash(self) -> None:
        may_crash = self.role in self.mix.crash_targets and self.crashes_left > 0
        if may_crash and self.network.roll(self.mix.crash):
            self.crashes_left -= 1
            raise Crashed
        if not self.is_alive:
            raise Crashed  # an event of this batch crashed the node

    def crash(self, *, down_s: float | None = None) -> None:
        """Lose memory and unperformed effects, keep the disk, and restart later."""
        if not self.is_alive:
            return
        self.trace("crash")
        self.is_alive = False
        self.incarnation += 1
        self.commits = Commits()
        self._is_committing = False
        self.forget_memory()
        down_s = self.random.choice((0.01, 1.0, 8.0)) if down_s is None else down_s
        incarnation = self.incarnation
        self.clock.after(down_s, lambda: self.start() if incarnation == self.incarnation else None)

    def start(self) -> None:
        """Start from the disk."""
        if not self.is_alive:
            self.trace(f"start with {len(self.disk.entries)} entries")
            self.is_alive = True
            self.restore()

    def forget_memory(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def undo(self, lost: Conversations) -> None:
        """Let the core undo a refused commit."""
        raise NotImplementedError
