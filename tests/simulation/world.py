"""One seed from its first entry to the verdict."""

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from replica.conversation.next_seal import open_requests
from replica.ids import ConversationId, EntryId
from replica.link.events import SyncState
from replica.log.body import Role
from tests.simulation import workload
from tests.simulation.clock import Clock
from tests.simulation.host_node import HostNode
from tests.simulation.hub_node import HubNode
from tests.simulation.mix import Mix, draw, limits_of
from tests.simulation.network import Network
from tests.simulation.node import Node
from tests.simulation.oracle import Oracle, Violation
from tests.simulation.replica_node import ReplicaNode

REPAIR_MAX_S = 200.0
"""Longest time for timeout, reconnect, heartbeat and the answers to open requests."""
EXCHANGES_MAX = 3
"""Most exchanges of one replica per conversation after the faults."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one seed."""

    seed: int
    mix: Mix
    trace_hash: str
    problem: str
    lines: tuple[str, ...]
    entries: int
    acks: int
    forks: int
    frames: int
    seen: Counter[str]
    exchanges_most: int
    repair_s: float
    comparisons: int
    """Comparisons that were asked for, answered and checked."""


class World:
    """All nodes of one seed."""

    def __init__(
        self, seed: int, shape: Callable[[Mix], Mix] | None = None, *, verbose: bool = False
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.mix = draw(self.random)
        if shape is not None:
            self.mix = shape(self.mix)
        self.clock = Clock(verbose=verbose)
        self.network = Network(self.clock, self.random, self.mix)
        self.oracle = Oracle(self.mix)
        self.hub = HubNode("hub", self.clock, self.network, self.oracle)
        parts = (self.clock, self.network, self.oracle, self.hub)
        self.people = [ReplicaNode(f"p{i}", *parts) for i in range(self.mix.people)]
        self.hosts = [HostNode(name, *parts) for name in ("host", "host2")[: self.mix.hosts]]
        self.replicas: list[ReplicaNode] = [*self.people, *self.hosts]
        self.nodes: list[Node] = [self.hub, *self.replicas]
        for host in self.hosts:
            host.is_selective = self.mix.follow and self.mix.hub_memory == 1
        self.conversations: list[ConversationId] = []
        self.damaged: set[EntryId] = set()
        self.faults_ended_at = 0.0

    # --- the run --------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run the seed; a violation is in `problem`."""
        problem = ""
        with limits_of(self.mix):
            try:
                self._begin()
                self._play()
                self._end_faults()
            except Violation as error:
                problem = str(error)
            except Exception as error:  # noqa: BLE001  # the core never raises at its driver
                problem = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        return self._outcome(problem)

    def _outcome(self, problem: str) -> Outcome:
        return Outcome(
            self.seed,
            self.mix,
            self.clock.trace_hash,
            problem,
            tuple(self.clock.lines),
            len(self.oracle.history),
            self.oracle.stores.acks,
            self.oracle.stores.forks,
            self.network.frames,
            self.network.seen,
            self.network.exchanges_most,
            self.clock.now - self.faults_ended_at,
            self.oracle.comparisons.checked,
        )

    def _begin(self) -> None:
        for node in self.nodes:
            node.start()
        for _ in range(self.mix.conversations):
            self._create_conversation()
        self.clock.run(self.mix.commit_s)
        self.people[
            0
        ].disk.snapshot()  # the first entry is never lost, since nothing could be tested without it
        for node in self.nodes:
            node.crashes_left = self.mix.crashes_max
            node.refusals_left = self.mix.refusals_max

    def _create_conversation(self) -> None:
        owner = self.people[0]
        second = self.people[1]
        owners = (owner.public,)
        if self.random.random() < 0.2:
            owners += (second.public,)
        conversation = owner.writer.create(owners)
        self.conversations.append(conversation)
        roles: list[tuple[ReplicaNode, Role]] = [(host, Role.HOST) for host in self.hosts]
        for person in self.people[1:]:
            last = person is self.people[-1] and len(self.people) > 2
            rare = Role.READER if last else Role.OWNER
            role = rare if self.random.random() < 0.3 else Role.WRITER
            roles.append((person, Role.READER if last and self.mix.promotes else role))
        for replica, role in roles:
            self._at_random(
                self._when_alive(
                    owner, partial(workload.grant, owner, conversation, replica.public, role)
                ),
                0.3,
            )
            if not self.mix.follow or self.random.random() < 0.3:
                self._at_random(partial(replica.join, conversation), 0.5)

    def _when_alive(self, node: ReplicaNode, act: Callable[[], None]) -> Callable[[], None]:
        def attempt() -> None:
            held = [node.shelf.get(c) for c in self.conversations]
            if node.is_alive and all(
                c is not None and c.log.genesis and not c.is_blocked for c in held
            ):
                act()
            else:
                self.clock.after(0.5, attempt)

        return attempt

    def _at_random(self, event: Callable[[], None], part: float = 1.0) -> None:
        self.clock.at(self.random.random() * part * self.mix.span_s, event)

    def _play(self) -> None:
        mix, span = self.mix, self.mix.span_s
        keys = tuple(host.public for host in self.hosts)
        for _ in range(mix.actions):
            person = self.random.choice(self.people)
            conversation = self.random.choice(self.conversations)
            self._at_random(partial(workload.act, person, conversation, keys))
        for _ in range(mix.breaks):
            self._at_random(partial(self._break_one))
        for _ in range(mix.partitions):
            self._at_random(self._partition_one)
        if mix.rollback:
            victim = self.random.choice((*self.people, *self.people, *self.hosts))
            backup_at = (0.2 + 0.3 * self.random.random()) * span
            self.clock.at(backup_at, victim.disk.snapshot)
            self.clock.at(backup_at + 0.45 * span, partial(self._roll_back, victim))
        if mix.hub_loss:
            self._at_random(self._lose_hub)
        if mix.has_damage:
            for victim in self.random.sample(self.nodes, mix.damage):
                self._at_random(partial(self._damage, victim))
        if mix.revoke:
            self._revoke()
        if mix.promotes:
            self._promote()
        self.clock.run(span)

    def _revoke(self) -> None:
        how, span, conversation = self.mix.revoke, self.mix.span_s, self.conversations[0]
        victim = self.hosts[0] if how == "host" else self.people[-1]
        authors = [self.people[0]] if how != "self" else []
        authors += [victim] if how in ("self", "both") else []
        at = span * (0.4 + 0.5 * self.random.random())
        for author in authors:
            revoke = partial(workload.revoke, author, conversation, victim.public)
            self.clock.at(at + 0.02 * span * self.random.random(), revoke)

    def _promote(self) -> None:
        """Give the reader another role, so that what it wrote counts."""
        owner, reader, conversation = self.people[0], self.people[-1], self.conversations[0]
        grant = partial(workload.grant, owner, conversation, reader.public, Role.WRITER)
        at = self.mix.span_s * (0.4 + 0.5 * self.random.random())
        self.clock.at(at, self._when_alive(owner, grant))

    def _break_one(self) -> None:
        wire = self.random.choice(self.replicas).wire
        if wire is not None:
            wire.break_off()

    def _partition_one(self) -> None:
        name = self.random.choice(self.replicas).name
        directions = self.random.choice(({"to_hub"}, {"to_client"}, {"to_hub", "to_client"}))
        length = self.random.choice((0.2, 0.4)) * self.mix.span_s
        if self.random.random() < 0.3:
            for flap in range(4):
                self.clock.after(flap * length / 4, partial(self.network.cut, name, directions))
                self.clock.after((flap + 0.5) * length / 4, partial(self.network.mend, name))
            return
        self.network.cut(name, directions)
        self.clock.after(length, partial(self.network.mend, name))

    def _roll_back(self, victim: ReplicaNode) -> None:
        victim.crash(down_s=0.01)
        lost = victim.disk.roll_back()
        victim.is_careless = self.mix.keep_epoch
        victim.trace(f"disk rolled back by {lost} entries")
        self.oracle.stores.removed(victim.name, victim.disk)
        if victim not in self.hosts:
            for delay_s in (0.02, 0.5, 2.0):  # a restored device is used at once
                conversation = self.random.choice(self.conversations)
                self.clock.after(delay_s, partial(workload.say, victim, conversation))

    def _damage(self, victim: Node) -> None:
        """Let a disk lose entries that another disk holds and keeps."""
        other = self.people[0] if victim is self.hub else self.hub
        safe = other.disk.ids() - self.damaged
        may_lose = [e.id for e in victim.disk.entries if e.id in safe]
        # No damaged disk lacks a genesis; without one, there are no known members to send to.
        if self.mix.damage > 1:
            may_lose = [i for i in may_lose if i not in self.conversations]
        lost = set(self.random.sample(may_lose, min(len(may_lose), self.random.choice((1, 1, 3)))))
        self.damaged |= lost
        victim.crash(down_s=0.01)
        victim.disk.damage(lost)
        victim.trace(f"disk lost {sorted(i.hex()[:6] for i in lost)}")
        self.oracle.stores.removed(victim.name, victim.disk)

    def _lose_hub(self) -> None:
        self.hub.crash()
        self.hub.disk.wipe()
        self.hub.trace("store lost")
        self.oracle.stores.removed("hub", self.hub.disk)

    # --- after the faults ---------------------------------------------------------------

    def _end_faults(self) -> None:
        self.network.end_faults()
        self.clock.trace("faults end")
        self.faults_ended_at = self.clock.now
        for host in self.hosts:
            host.is_selective = False
        for node in self.nodes:
            node.start()
        for replica in self.replicas:
            for conversation in self.conversations:
                replica.join(conversation)
        while not self._is_finished():
            if self.clock.now - self.faults_ended_at > REPAIR_MAX_S:
                raise Violation(f"not finished after {REPAIR_MAX_S} s: {self._unfinished()}")
            self.clock.run(self.clock.now + 1.0)
        self._check()

    def _is_finished(self) -> bool:
        return not self._unfinished()

    def _unfinished(self) -> str:
        """Return the first reason why the run is not finished."""
        if any(node.has_work for node in self.nodes):
            return "a node has effects to perform"
        for conversation in self.conversations:
            held = self.hub.held(conversation)
            if held is None:
                return "the hub lacks a conversation"
            if held.damage:
                return "the hub lacks entries that its disk lost"
            for replica in self.replicas:
                if not held.is_member(replica.public):
                    continue
                mine = replica.shelf.get(conversation)
                if mine is not None and mine.damage:
                    return f"{replica.name} lacks entries that its disk lost"
                if mine is None or mine.log.digest != held.log.digest:
                    return f"{replica.name} differs from the hub"
                channel = replica.core.link.channel(conversation)
                if channel is None or channel.state is not SyncState.SYNCHRONIZED:
                    return f"{replica.name} is not synchronized"
                if channel.unacked or channel.wanted:
                    return f"{replica.name} waits for acks or entries"
                if channel.opens.is_due:
                    return f"{replica.name} waits for a comparison"
            # Requests behind a revoked host's seal wait until it is closed.
            answering = self.hosts if self.mix.revoke != "host" else self.hosts[:1]
            for host in answering:
                if held.is_member(host.public) and open_requests(held, host.public):
                    return "a request has no answer"
        return ""

    def _check(self) -> None:
        stores = {node.name: node.disk for node in self.nodes}
        self.oracle.stores.check(stores)
        for replica in self.replicas:
            replica.witness.check_acked()
        for conversation in self.conversations:
            holders = {"hub": (None, self.hub.held(conversation))}
            for replica in self.replicas:
                if conversation in replica.shelf:
                    holders[replica.name] = (replica.public, replica.shelf[conversation])
            self.oracle.agreement.check(conversation, stores, holders)
        most = self.network.exchanges_most
        if most > EXCHANGES_MAX * len(self.conversations) and not self.mix.syncs:
            raise Violation(f"{most} exchanges after the faults stopped")


def run_seed(
    seed: int, shape: Callable[[Mix], Mix] | None = None, *, verbose: bool = False
) -> Outcome:
    """Run one seed; `shape` changes its mix."""
    return World(seed, shape, verbose=verbose).run()
