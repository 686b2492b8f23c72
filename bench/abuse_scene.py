"""A hub that is attacked, and what one attack cost it: for bench/abuse.py and abuse_memory.py.

The hub is the pure core with the codec: no socket and no disk.
"""

import gc
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from time import process_time

from bench.hostile_logs import Pen, Talk, said
from replica.limits import VERSION
from replica.link import Entries, Frame, Hello, Message, decode_frame
from replica.log import Role
from syncd.hub import Hub
from syncd.links.connected import LinkId
from syncd.policy import Policy

FLOOR_MS = 0.3
"""Times below this count as this: growth from nothing to little is no growth.

A look at each entry of a log of 10^4 is some 1 ms.
"""
READER, WRITER, HOST = 2, 3, 4
ROLES = {READER: Role.READER, WRITER: Role.WRITER, HOST: Role.HOST}
HUB = Pen(99).public


@dataclass
class Row:
    """One attack at one size."""

    attack: str
    line: int
    """The line of the list of defects that it belongs to."""
    n: int
    cpu_ms: float
    sent_bytes: int
    grown_bytes: int = 0
    append_ms: float = 0.0
    answer_bytes: int = 0
    """Bytes of the answer at once: more of them are more work, and the peer waits for credit."""
    frames: int = 0

    @property
    def cost_ms(self) -> float:
        """CPU time in ms, for each started 32 KiB of the answer."""
        return max(FLOOR_MS, self.cpu_ms / (1 + self.answer_bytes // 32_768))


@dataclass
class Scene:
    """A hub with one conversation; a reader, a writer and a host are its members."""

    talk: Talk
    hub: Hub
    pens: dict[int, Pen]

    def link(self, pen: Pen, *, watches: bool = False) -> LinkId:
        """Link a member."""
        link_id = self.hub.connect(pen.public, 0.0, watches=watches)
        self.hub.receive(link_id, Hello((VERSION,)), 0.0)
        return link_id

    def grown_bytes(self, link_id: LinkId, frames: Iterable[bytes]) -> int:
        """Return the memory that the hub keeps of frames; tracing slows it, so no time."""
        gc.collect()
        tracemalloc.start()
        for data in frames:
            self.hub.receive(link_id, decode_frame(data, "to_hub"), 0.0, len(data))
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return grown

    def frame(self, link_id: LinkId, message: Message) -> tuple[float, int, int]:
        """Send one frame; return the CPU time in ms, the bytes of the frame and of the answer."""
        data = Frame.of(message, "to_hub").data
        began = process_time()
        effects = self.hub.receive(link_id, decode_frame(data, "to_hub"), 0.0, len(data))
        ms = 1000 * (process_time() - began)
        return ms, len(data), sum(len(frame.data) for to, frame in effects.send if to == link_id)

    def append_ms(self, repeats: int = 5) -> float:
        """Return the least CPU time of the owner's append."""
        link_id, least = self.link(self.talk.owner), float("inf")
        for _ in range(repeats):
            entry = self.talk.top = self.talk.owner.write(said(), self.talk.top)
            least = min(least, self.frame(link_id, Entries(self.talk.id, (entry,)))[0])
        self.hub.disconnect(link_id)
        return least


Grow = Callable[[Talk, dict[int, Pen]], None]


def scene(grow: Grow) -> Scene:
    """Build a hub over a conversation that was grown before."""
    return _attended(*_grown(grow))


def _grown(grow: Grow) -> tuple[Talk, dict[int, Pen]]:
    talk = Talk()
    pens = {number: talk.member(number, role) for number, role in ROLES.items()}
    talk.messages(talk.owner, 3)
    grow(talk, pens)
    return talk, pens


def _attended(talk: Talk, pens: dict[int, Pen]) -> Scene:
    hub = Hub(HUB, Policy())
    hub.load(talk.id, talk.entries)
    return Scene(talk, hub, pens)


def messages(n: int) -> Scene:
    """Build a hub over a conversation with n messages of one member."""
    talk, pens = _written(n)
    return _attended(talk.twin(), {number: pen.twin() for number, pen in pens.items()})


@cache
def _written(n: int) -> tuple[Talk, dict[int, Pen]]:
    """Write the messages once for all attacks: that takes longer than most of them."""
    return _grown(lambda talk, pens: talk.messages(pens[WRITER], n))
