"""Wires between replicas and the hub, which lose, repeat, delay and cut off frames."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Protocol

from replica.conversation.drafts import Draft
from replica.link import messages as m
from replica.link.codec import Direction, decode_frame
from replica.link.frame import Frame
from tests.simulation.clock import Clock
from tests.simulation.mix import Mix


class End(Protocol):
    """The receiver at one end of a wire."""

    def receive_frame(self, wire: "Wire", message: m.Message, size_bytes: int) -> None: ...

    def wire_broken(self, wire: "Wire") -> None: ...


class Network:
    """All wires, and the partitions between replicas and the hub by direction."""

    def __init__(self, clock: Clock, random: Random, mix: Mix) -> None:
        self.clock = clock
        self.random = random
        self.mix = mix
        self.is_faultless = False
        self.cut_off: dict[str, set[Direction]] = {}
        self.frames = 0
        self.seen: Counter[str] = Counter()
        self.opens: Counter[str] = Counter()
        self.unequal: Counter[str] = Counter()
        self._held: list[Callable[[], None]] = []

    def is_cut(self, name: str, direction: Direction) -> bool:
        return direction in self.cut_off.get(name, ())

    def cut(self, name: str, directions: set[Direction]) -> None:
        if self.is_faultless:
            return
        self.clock.trace(f"net cut {name} {sorted(directions)}")
        self.cut_off.setdefault(name, set()).update(directions)

    def mend(self, name: str) -> None:
        """End a partition; deliver the frames that the transport still holds."""
        if self.cut_off.pop(name, None):
            self.clock.trace(f"net mend {name}")
        held, self._held = self._held, []
        for deliver in held:
            deliver()

    def end_faults(self) -> None:
        """End all faults for good."""
        self.is_faultless = True
        self.cut_off.clear()
        self.mend("")

    def delay(self) -> float:
        jitter = self.mix.jitter_s * self.random.random() if not self.is_faultless else 0.0
        return self.mix.latency_s + jitter

    @property
    def exchanges_most(self) -> int:
        """Most comparisons any replica asked for since the faults ended that found a difference."""
        return max((min(n, self.unequal[name]) for name, n in self.opens.items()), default=0)

    def roll(self, rate: float) -> bool:
        return not self.is_faultless and rate > 0 and self.random.random() < rate

    def hold(self, deliver: Callable[[], None]) -> None:
        """Keep a frame until the partition ends, as a transport with retransmission does."""
        self._held.append(deliver)


class Wire:
    """One stream between a replica and the hub, with a pipe per direction."""

    def __init__(self, network: Network, name: str, client: End, hub: End) -> None:
        self.network = network
        self.name = name
        self.ends: dict[Direction, End] = {"to_hub": hub, "to_client": client}
        self.link_id = 0
        self.is_broken = False
        self._last_arrival: dict[Direction, float] = {"to_hub": 0.0, "to_client": 0.0}

    def send(self, frame: Frame, direction: Direction) -> None:
        """Send a frame as bytes."""
        net, message = self.network, frame.message
        net.frames += 1
        if net.is_faultless:
            net.opens[self.name] += isinstance(message, m.Open)
            net.unequal[self.name] += isinstance(message, m.Opened) and not message.equal
        net.seen[message.reason if isinstance(message, m.Fault) else type(message).__name__] += 1
        arrow = ">" if direction == "to_hub" else "<"
        net.clock.trace(f"{self.name} {arrow} {describe(message)}")
        if self.is_broken:
            self._reset(direction)
            return
        if net.roll(net.mix.drop):
            return
        copies = 2 if net.roll(net.mix.duplicate) else 1
        for _ in range(copies):
            self._deliver_later(frame.data, direction)

    def _deliver_later(self, data: bytes, direction: Direction) -> None:
        net = self.network
        arrival = net.clock.now + net.delay()
        if not net.mix.reorder or net.is_faultless:
            arrival = max(arrival, self._last_arrival[direction] + 1e-9)
        self._last_arrival[direction] = max(arrival, self._last_arrival[direction])
        net.clock.at(arrival, lambda: self._arrive(data, direction))

    def _arrive(self, data: bytes, direction: Direction) -> None:
        if self.is_broken:
            return
        if self.network.is_cut(self.name, direction):
            if not self.network.mix.blackhole:
                self.network.hold(lambda: self._arrive(data, direction))
            return
        self.ends[direction].receive_frame(self, decode_frame(data, direction), len(data))

    def _reset(self, direction: Direction) -> None:
        """Report a broken stream to its sender, unless a partition prevents that."""
        back: Direction = "to_client" if direction == "to_hub" else "to_hub"
        if not self.network.cut_off.get(self.name):
            sender = self.ends[back]
            self.network.clock.after(self.network.delay(), lambda: sender.wire_broken(self))

    def break_off(self) -> None:
        """End the stream; each running side is notified or times out."""
        if self.is_broken:
            return
        self.is_broken = True
        self.network.clock.trace(f"{self.name} wire broken")
        for direction, end in self.ends.items():
            if not self.network.is_cut(self.name, direction):
                self.network.clock.after(
                    self.network.delay(), lambda end=end: end.wire_broken(self)
                )


def describe(message: m.Message) -> str:
    """Return one line that describes a message; equal messages give equal lines."""
    match message:
        case m.Entries(entries=entries):
            return f"Entries {[e.id.hex()[:6] for e in entries]}"
        case m.Ids(ids=ids, more=more, answer=answer):
            return f"Ids {len(ids)} more={more} answer={answer}"
        case m.Open(digest=digest, heads=heads):
            shown = None if heads is None else [h.id.hex()[:6] for h in heads]
            return f"Open {digest.hex()[:6]} {shown}"
        case m.Opened(digest=digest, equal=equal, heads=heads):
            shown = None if heads is None else [h.id.hex()[:6] for h in heads]
            return f"Opened {digest.hex()[:6]} {equal} {shown}"
        case m.Ack(ids=ids):
            return f"Ack {[i.hex()[:6] for i in ids]}"
        case m.Fault(reason=reason, entry=entry, missing=missing):
            where = entry.hex()[:6] if entry else "-"
            return f"Fault {reason} {where} {[i.hex()[:6] for i in missing]}"
        case m.Close(fault=fault):
            return f"Close {fault.reason if fault else '-'}"
        case Draft(token_offset=at, token_ids=ids):
            return f"Draft {at}+{len(ids)}"
        case m.Listing(items=items):
            return f"Listing {[i.conversation.hex()[:6] for i in items]}"
        case _:
            return type(message).__name__
