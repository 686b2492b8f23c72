"""The work and the memory that one peer can cause at a hub, as its conversation grows.

Each attack is one frame, or one shape of a log, at n = 10^2 and 10^4; `--long` adds
10^5. Beside each stand the hub's CPU time, its growth from the least n to the most (for an
answer of many bytes: its growth per byte),
and, for a frame, the CPU time of another member's append right after it. The hub is
the pure core with the codec: no socket and no disk.
"""

import contextlib
import gc
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time

from antiphon.v1 import sync_pb2 as pb
from bench.hostile_logs import ANY, Pen, Talk, said
from bench.result import Goal, report, say, sized_parser
from replica.conversation import Conversation, MemoryShelf
from replica.errors import AntiphonError
from replica.ids import EntryId, Lane, Track
from replica.limits import ENTRIES_PER_FRAME_MAX, VERSION
from replica.link import (
    Entries,
    Fault,
    Frame,
    Hello,
    Ids,
    Link,
    Message,
    Open,
    Opened,
    Side,
    Welcome,
    decode_frame,
)
from replica.log import Conflict, Join, Role
from replica.refusals import EntriesMissing
from syncd import queries
from syncd.connected import LinkId
from syncd.hub import Hub
from syncd.policy import Policy
from syncd.shelf import Known

SIZES = (100, 10_000)
LONG = 100_000
FRAME_MS = 20.0
GROWTH = 1.5
FLOOR_MS = 1.0
"""Times below this count as this: growth from nothing to little is no growth."""
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


def scene(grow: Callable[[Talk, dict[int, Pen]], None]) -> Scene:
    """Build a hub over a conversation that was grown before."""
    talk = Talk()
    pens = {number: talk.member(number, role) for number, role in ROLES.items()}
    talk.messages(talk.owner, 3)
    grow(talk, pens)
    hub = Hub(HUB, Policy())
    hub.load(talk.id, talk.entries)
    return Scene(talk, hub, pens)


def _messages(n: int) -> Scene:
    return scene(lambda talk, pens: talk.messages(pens[WRITER], n))


def _framed(attack: str, line: int, n: int, at: Scene, by: int, message: Message) -> Row:
    at.append_ms()  # caches that depend on the log are filled before
    ms, sent, answer = min(at.frame(at.link(at.pens[by]), message) for _ in range(3))
    return Row(attack, line, n, ms, sent, append_ms=at.append_ms(), answer_bytes=answer)


# --- frames (8, 9) ------------------------------------------------------------------


def empty_entries(n: int) -> Row:
    """Send a frame of n empty entries."""
    frame = pb.LinkRequest(entries=pb.Entries(entries=[{}] * n)).SerializeToString()
    at = _messages(100)
    link_id = at.link(at.pens[READER])
    tracemalloc.start()
    began = process_time()
    with contextlib.suppress(AntiphonError):
        at.hub.receive(link_id, decode_frame(frame, "to_hub"), 0.0, len(frame))
    ms, (_, peak) = 1000 * (process_time() - began), tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Row("frame of n empty entries", 8, n, ms, len(frame), peak, at.append_ms())


def refused_entries(n: int) -> Row:
    """Push entries that are refused, as many as a frame holds; n of them at most."""
    at = _messages(100)
    ids = [EntryId(i.to_bytes(32, "big")) for i in range(min(n, ENTRIES_PER_FRAME_MAX))]
    faults = [Fault.of(EntriesMissing(), at.talk.id, i) for i in ids]
    began = process_time()
    queries.outcomes(ids, faults, at.hub.shelf[at.talk.id])
    return Row("outcomes of n entries", 8, n, 1000 * (process_time() - began), 40 * len(ids))


def fetch_ranges(n: int) -> Row:
    """Fetch 1,000 ranges of one lane."""
    at = _messages(n)
    lane = Lane(at.pens[WRITER].public, 1, Track.CONVERSATION)
    ranges = [queries.LaneRange(lane, i, i + 1) for i in range(1_000)]
    held = at.hub.shelf[at.talk.id]
    began = process_time()
    next(queries.fetch(held, (), ranges))
    return Row("Fetch of 1,000 ranges", 8, n, 1000 * (process_time() - began), 40_000)


def open_without_heads(n: int) -> Row:
    """Open with no heads: send everything."""
    at = _messages(n)
    message = Open(at.talk.id, ANY, ())
    return _framed("Open without heads", 9, n, at, READER, message)


def open_digest(n: int) -> Row:
    """Open with another digest alone."""
    at = _messages(n)
    return _framed("Open with a digest", 9, n, at, READER, Open(at.talk.id, ANY))


def empty_ids(n: int) -> Row:
    """Compare by ids, holding nothing."""
    at = _messages(n)
    at.append_ms()
    links = [at.link(at.pens[READER]) for _ in range(3)]
    for link_id in links:
        at.frame(link_id, Open(at.talk.id, ANY))
    ms, sent, answer = min(at.frame(link_id, Ids(at.talk.id, ())) for link_id in links)
    return Row("empty Ids", 9, n, ms, sent, append_ms=at.append_ms(), answer_bytes=answer)


def watched_append(n: int) -> Row:
    """Append beside 8 Watches of one key."""
    at = _messages(n)
    held = at.hub.shelf[at.talk.id]
    for _ in range(8):
        link_id = at.link(at.pens[READER], watches=True)
        at.frame(link_id, Open(at.talk.id, held.log.digest))
    ms = at.append_ms()
    return Row("append beside 8 Watches", 9, n, ms, 300, append_ms=ms)


def forked_lane(n: int) -> Row:
    """Open where one lane has n ends, at most 3,000."""
    at = scene(lambda talk, pens: talk.forked(pens[WRITER], min(n, 3_000)))
    return _framed("Open, a lane with n ends", 9, n, at, READER, Open(at.talk.id, ANY, ()))


# --- logs (7, 10, 13) ---------------------------------------------------------------


def many_lanes(n: int) -> Row:
    """Open where a reader has joined in n epochs, at most 14,000; the answer must fit a frame."""
    count = min(n, 14_000)
    at = scene(lambda talk, pens: talk.lanes(pens[READER], count, Join()))
    at.append_ms()
    link_id = at.link(at.pens[WRITER])
    data = Frame.of(Open(at.talk.id, ANY), "to_hub").data
    began = process_time()
    effects = at.hub.receive(link_id, decode_frame(data, "to_hub"), 0.0, len(data))
    ms = 1000 * (process_time() - began)
    most = max(len(frame.data) for _, frame in effects.send)
    return Row("Opened with n lanes", 7, n, ms, len(data), most, at.append_ms())


def revocations(n: int) -> Row:
    """Restore a log with n revocations, at most 1,500, of a key with 5,000 entries at most."""
    count = min(n, 1_500)

    def grow(talk: Talk, pens: dict[int, Pen]) -> None:
        talk.messages(pens[WRITER], min(5_000, 10 * n))
        talk.revocations(pens[WRITER].public, talk.top, count)

    return _restored("n revocations of one key", 10, n, grow)


def void_seals(n: int) -> Row:
    """Restore a log with n void seals, at most 500, of a request behind 2,000 entries at most."""

    def grow(talk: Talk, pens: dict[int, Pen]) -> None:
        talk.messages(pens[WRITER], min(2_000, 10 * n))
        request = talk.request(pens[HOST])
        for _ in range(min(n, 500)):
            talk.seal(pens[HOST], request, [request])

    return _restored("n void seals of one request", 10, n, grow)


def sibling_seals(n: int) -> Row:
    """Restore a log with n seals, at most 500, that all extend a seal of 2,000 entries."""

    def grow(talk: Talk, pens: dict[int, Pen]) -> None:
        host = pens[HOST]
        talk.messages(pens[WRITER], min(2_000, 10 * n))
        listed = talk.entries[4:]
        first = talk.request(host)
        seal = talk.seal(host, first, [*listed, first])
        talk.answer(host, seal)
        for _ in range(min(n, 500)):
            request = talk.request(host, basis=seal, conflict=Conflict.FORK)
            talk.seal(host, request, [talk.top, request], prev=seal)

    return _restored("n sibling seals", 10, n, grow)


def queued_turns(n: int) -> Row:
    """Restore a log of n queued turns, at most 6,000."""

    def grow(talk: Talk, pens: dict[int, Pen]) -> None:
        host, seal, listed = pens[HOST], None, []
        for _ in range(min(n, 6_000)):
            request = talk.request(host, basis=seal)
            seal = talk.seal(host, request, [*listed, request], prev=seal)
            listed = [talk.answer(host, seal)]

    return _restored("n queued turns", 13, n, grow)


def _restored(attack: str, line: int, n: int, grow: Callable[[Talk, dict[int, Pen]], None]) -> Row:
    """Measure the time of a restore, then its memory in a second one, which tracing slows."""
    talk = Talk()
    pens = {number: talk.member(number, role) for number, role in ROLES.items()}
    grow(talk, pens)
    began = process_time()
    talk.restored().log.digest  # noqa: B018  # folded on first use
    ms = 1000 * (process_time() - began)
    gc.collect()
    tracemalloc.start()
    held = talk.restored()
    held.log.digest  # noqa: B018
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Row(attack, line, n, ms, sum(e.size_bytes for e in talk.entries), grown)


# --- links (11, 13) -----------------------------------------------------------------


def idle_links(n: int) -> Row:
    """Append beside n links that have nothing open, at most 1,000."""
    at = _messages(100)
    for _ in range(min(n, 1_000)):
        at.link(at.pens[READER])
    ms = at.append_ms()
    return Row("append beside n idle links", 13, n, ms, 300, append_ms=ms)


def many_channels(n: int) -> Row:
    """Open n conversations at a client, at most 2,000: the CPU time for each."""
    count = min(n, 2_000)
    talks = [Talk(Pen(1_000 + i)) for i in range(count)]
    me = Pen(1).public
    shelf = MemoryShelf(talk.restored() for talk in talks)
    client = Link(Side.CLIENT, key=me, peer=HUB, shelf=shelf, now=0.0)
    client.start(Hello((VERSION,)))
    client.receive(Welcome(VERSION, HUB, 1 << 20, 1 << 30, 60_000), 0.0)
    began = process_time()
    for talk in talks:
        client.open(talk.id, 0.0)
    for talk in talks:
        digest = shelf[talk.id].log.digest
        client.receive(Opened(talk.id, digest, equal=True), 0.0)
    ms = 1000 * (process_time() - began) / count
    return Row("open one of n conversations", 13, n, ms, 100)


def many_listings(n: int) -> Row:
    """Follow a hub with n conversations, at most 20,000; memory is the bytes listed."""
    count, victim = min(n, 20_000), Pen(5)
    hub = Hub(HUB, Policy(conversations_in_memory_max=1))
    for i in range(count):
        talk = Talk(Pen(1_000 + i))
        talk.member(5, Role.READER)
        held = Conversation.restore(talk.id, talk.entries)
        hub.index(talk.id, Known.of(held), held.creator)
    link_id = hub.connect(victim.public, 0.0)
    began = process_time()
    effects = hub.receive(link_id, Hello((VERSION,), follow=True), 0.0)
    ms = 1000 * (process_time() - began)
    listed = sum(len(frame.data) for _, frame in effects.send)
    row = Row("Listing of n conversations", 11, n, ms, 100, listed)
    row.frames = len(effects.send)
    return row


ATTACKS = (
    empty_entries, refused_entries, fetch_ranges, open_without_heads, open_digest, empty_ids,
    watched_append, forked_lane, many_lanes, revocations, void_seals, sibling_seals, queued_turns,
    idle_links, many_channels, many_listings,
)  # fmt: skip


def measure(sizes: tuple[int, ...], names: list[str]) -> list[Row]:
    """Run the attacks, each at all sizes."""
    rows = []
    for attack in ATTACKS:
        if names and attack.__name__ not in names:
            continue
        for n in sizes:
            row = attack(n)
            rows.append(row)
            say(
                f"{row.line:3} {row.attack:32} n={n:<7} {row.cpu_ms:10.2f} ms "
                f"{row.grown_bytes / 1e6:8.2f} MB  append {row.append_ms:.2f} ms"
            )
    return rows


def goals(rows: list[Row]) -> list[Goal]:
    """Return the bars: time of a frame, growth, memory, the append of another member."""
    found = []
    by_attack: dict[str, list[Row]] = {}
    for row in rows:
        by_attack.setdefault(row.attack, []).append(row)
    for attack, of_it in by_attack.items():
        most = of_it[-1]
        if most.line in (8, 9):
            found.append(Goal(f"{attack}: ms of one frame", most.cpu_ms, FRAME_MS, False))
        if most.line == 9 or attack in FLAT:
            growth = most.cost_ms / of_it[0].cost_ms
            found.append(Goal(f"{attack}: growth", growth, GROWTH, False))
        if most.line == 10:
            ratio = most.grown_bytes / most.sent_bytes
            found.append(Goal(f"{attack}: bytes held per byte sent", ratio, 8.0, False))
        if most.append_ms:
            found.append(Goal(f"{attack}: ms of an append beside it", most.append_ms, 3.0, False))
    return found


FLAT = ("append beside n idle links", "open one of n conversations")


def main() -> int:
    """Run all attacks, or those named; return 1 if a bar was missed."""
    arguments = sized_parser(__doc__ or "", [one.__name__ for one in ATTACKS]).parse_args()
    sizes = (*SIZES, LONG) if arguments.long else SIZES
    rows = measure(sizes, arguments.names)
    raw = {"rows": [vars(row) for row in rows]}
    return report("abuse", goals(rows), raw, json_only=arguments.json)


if __name__ == "__main__":
    sys.exit(main())
