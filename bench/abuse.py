"""The work and the memory that one peer can cause at a hub, as its conversation grows.

Each attack is one frame, or one shape of a log, at n = 10^2 and 10^4; `--long` adds
10^5. Beside each stand the hub's CPU time, its growth from the least n to the most (for an
answer of many bytes: its growth per byte),
and, for a frame, the CPU time of another member's append right after it. The hub is
the pure core with the codec: no socket and no disk. Of line 12 of the list of defects, memory
without a bound for the hub, it shows lists of ids and drafts (bench/abuse_memory.py); what
drivers keep, bench/abuse_hub.py measures in a hub's process. tests/test_bench.py holds the bars
on memory and growth at 10^2 and 10^4; those on times need a quiet machine.
"""

import contextlib
import gc
import sys
import tracemalloc
from collections.abc import Callable
from time import process_time

from antiphon.v1 import sync_pb2 as pb
from bench.abuse_memory import (
    ABSENT_IDS,
    HELD_IDS,
    ONE_TOKEN,
    draft_frames,
    draft_tokens,
    ids_absent,
    ids_held,
)
from bench.abuse_scene import HOST, HUB, READER, ROLES, WRITER, Row, Scene, messages, scene
from bench.hostile_logs import ANY, Pen, Talk
from bench.result import Goal, report, say, sized_parser
from replica.conversation import Conversation, MemoryShelf
from replica.errors import AntiphonError
from replica.ids import EntryId, Lane, Track
from replica.limits import ENTRIES_PER_FRAME_MAX, VERSION
from replica.link import (
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
from syncd.calls import queries
from syncd.hub import Hub
from syncd.policy import Policy
from syncd.shelves.shelf import Known

SIZES = (100, 10_000)
LONG = 100_000
FRAME_MS = 20.0
GROWTH = 1.5


def _framed(attack: str, line: int, n: int, at: Scene, by: int, message: Message) -> Row:
    at.append_ms()  # caches that depend on the log are filled before
    ms, sent, answer = min(at.frame(at.link(at.pens[by]), message) for _ in range(3))
    return Row(attack, line, n, ms, sent, append_ms=at.append_ms(), answer_bytes=answer)


# --- frames (8, 9) ------------------------------------------------------------------


def empty_entries(n: int) -> Row:
    """Send a frame of n empty entries."""
    frame = pb.LinkRequest(entries=pb.Entries(entries=[{}] * n)).SerializeToString()
    at = messages(100)
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
    at = messages(100)
    ids = [EntryId(i.to_bytes(32, "big")) for i in range(min(n, ENTRIES_PER_FRAME_MAX))]
    faults = [Fault.of(EntriesMissing(), at.talk.id, i) for i in ids]
    began = process_time()
    queries.outcomes(ids, faults, at.hub.shelf[at.talk.id])
    return Row("outcomes of n entries", 8, n, 1000 * (process_time() - began), 40 * len(ids))


def fetch_ranges(n: int) -> Row:
    """Fetch 1,000 ranges of one lane."""
    at = messages(n)
    lane = Lane(at.pens[WRITER].public, 1, Track.CONVERSATION)
    ranges = [queries.LaneRange(lane, i, i + 1) for i in range(1_000)]
    held = at.hub.shelf[at.talk.id]
    began = process_time()
    next(queries.fetch(held, (), ranges))
    return Row("Fetch of 1,000 ranges", 8, n, 1000 * (process_time() - began), 40_000)


def open_without_heads(n: int) -> Row:
    """Open with no heads: send everything."""
    at = messages(n)
    message = Open(at.talk.id, ANY, ())
    return _framed("Open without heads", 9, n, at, READER, message)


def open_digest(n: int) -> Row:
    """Open with another digest alone."""
    at = messages(n)
    return _framed("Open with a digest", 9, n, at, READER, Open(at.talk.id, ANY))


def empty_ids(n: int) -> Row:
    """Compare by ids, holding nothing."""
    at = messages(n)
    at.append_ms()
    links = [at.link(at.pens[READER]) for _ in range(3)]
    for link_id in links:
        at.frame(link_id, Open(at.talk.id, ANY))
    ms, sent, answer = min(at.frame(link_id, Ids(at.talk.id, ())) for link_id in links)
    return Row("empty Ids", 9, n, ms, sent, append_ms=at.append_ms(), answer_bytes=answer)


def watched_append(n: int) -> Row:
    """Append beside 8 Watches of one key."""
    at = messages(n)
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
    at = messages(100)
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
    for number, talk in enumerate(talks, 1):
        digest = shelf[talk.id].log.digest
        client.receive(Opened(talk.id, digest, True, None, number), 0.0)
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
    idle_links, many_channels, many_listings, ids_absent, ids_held, draft_frames, draft_tokens,
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
        if most.line in (8, 9, 12):
            found.append(Goal(f"{attack}: ms of one frame", most.cpu_ms, FRAME_MS, False))
        if most.line == 9 or attack in FLAT:
            growth = most.cost_ms / of_it[0].cost_ms
            found.append(Goal(f"{attack}: growth (of 0.3 ms at least)", growth, GROWTH, False))
        if most.line in (10, 12):
            ratio = most.grown_bytes / most.sent_bytes
            found.append(Goal(f"{attack}: bytes held per byte sent", ratio, 8.0, False))
        if most.append_ms:
            found.append(Goal(f"{attack}: ms of an append beside it", most.append_ms, 3.0, False))
    return found


FLAT = (
    "Fetch of 1,000 ranges", "append beside n idle links", "open one of n conversations",
    ABSENT_IDS, HELD_IDS, ONE_TOKEN,
)  # fmt: skip


def main() -> int:
    """Run all attacks, or those named; return 1 if a bar was missed."""
    arguments = sized_parser(__doc__ or "", [one.__name__ for one in ATTACKS]).parse_args()
    sizes = (*SIZES, LONG) if arguments.long else SIZES
    rows = measure(sizes, arguments.names)
    raw = {"rows": [vars(row) for row in rows]}
    return report("abuse", goals(rows), raw, json_only=arguments.json)


if __name__ == "__main__":
    sys.exit(main())
