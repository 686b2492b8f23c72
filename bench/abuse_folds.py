"""The longest time for which one frame holds a hub's loop, where it concerns a whole log.

Its fold may concern all entries, or they or their readers are so many that it takes long to send.

Each attack is one frame on a log of n = 10^2 and 10^4 entries; `--long` adds 10^5. The hub is the
core, run as the server runs it: in steps that a pacer gives, with its passes of the garbage
collector. Beside it a task takes every turn of the loop and notes the CPU time between two of
them. Of three rounds the middle one counts.
"""

import asyncio
import sys
from dataclasses import dataclass, field, replace
from statistics import median
from time import process_time

from bench.abuse import FRAME_MS, LONG, SIZES
from bench.abuse_scene import HOST, HUB, READER, ROLES, WRITER
from bench.hostile_logs import ANY, EMPTY, Pen, Talk, extended, said
from bench.result import Goal, report, say, sized_parser
from replica.ids import Lane, Track
from replica.limits import STREAMS_MAX, VERSION
from replica.link import Entries, Hello, Open
from replica.log import Entry, Grant, Member, Revocation, Role, Seal
from replica.log.body import Cut
from syncd.bounds.shares import Payer
from syncd.hub import Hub
from syncd.io.collection import Collection
from syncd.io.folds import Folds
from syncd.io.pacer import Pacer
from syncd.io.resumes import Resumes
from syncd.policy import Policy

ROUNDS = 3
TURNS = 3_000
"""Most turns of a host: a log of turns takes long to build."""
LISTED = 8_000
"""Most entries that a seal lists, or that wait for one other."""


@dataclass
class Scene:
    """A log, the entries that wait at the hub, and the frame of the attack."""

    talk: Talk
    frame: list[Entry]
    by: Pen
    waiting: list[Entry] = field(default_factory=list)
    links: int = 0
    """Links of a reader that have the conversation open."""


@dataclass
class Row:
    """One attack at one size: CPU time of the longest hold of the loop, and of all of it."""

    attack: str
    n: int
    hold_ms: float
    cpu_ms: float


def _talk() -> tuple[Talk, dict[int, Pen]]:
    talk = Talk()
    return talk, {number: talk.member(number, role) for number, role in ROLES.items()}


def _revocation(talk: Talk, key: Pen, *cuts: Entry) -> Entry:
    at = tuple(Cut(e.header.epoch, e.header.track, e.header.seq, e.id) for e in cuts)
    return talk.owner.write(Member(Revocation(key.public, at)), talk.granted, listed=cuts)


def revoked_writer(n: int) -> Scene:
    """Revoke a writer of n entries without a cut."""
    talk, pens = _talk()
    talk.messages(pens[WRITER], n)
    return Scene(talk, [_revocation(talk, pens[WRITER])], talk.owner)


def resigned_writer(n: int) -> Scene:
    """Resign without a cut, as a writer of n entries."""
    talk, pens = _talk()
    talk.messages(pens[WRITER], n)
    body = Member(Revocation(pens[WRITER].public))
    return Scene(talk, [pens[WRITER].write(body, talk.granted)], pens[WRITER])


def moved_cut(n: int) -> Scene:
    """Move the cut of a lane of n entries from its end to its begin."""
    talk, pens = _talk()
    talk.messages(pens[WRITER], n)
    first, last = talk.entries[5], talk.entries[-1]
    talk.entries.append(_revocation(talk, pens[WRITER], last))
    return Scene(talk, [_revocation(talk, pens[WRITER], first)], talk.owner)


def regained_writer(n: int) -> Scene:
    """Grant a writer of n entries a role again, whom its granter has revoked."""
    talk, _ = _talk()
    second, junior = talk.member(7, Role.OWNER), Pen(8)
    grant = second.write(Member(Grant(junior.public, Role.WRITER)), talk.granted)
    talk.entries.append(grant)
    talk.messages(junior, n)
    talk.entries.append(second.write(Member(Revocation(junior.public)), grant))
    again = talk.owner.write(Member(Grant(junior.public, Role.WRITER)), talk.granted)
    return Scene(talk, [again], talk.owner)


def regained_beside_links(n: int) -> Scene:
    """Grant a writer of n entries a role again, beside 64 links that are sent them all."""
    return replace(regained_writer(n), links=64)


def message_beside_links(n: int) -> Scene:
    """Send one message beside n links that read it, at most as many as a hub takes."""
    talk, pens = _talk()
    talk.messages(pens[WRITER], 100)
    message = talk.entries.pop()
    return Scene(talk, [message], pens[WRITER], links=min(n, STREAMS_MAX))


def revocation_beside_grants(n: int) -> Scene:
    """Revoke one of n keys, at most 10^4."""
    talk, pens = _talk()
    for number in range(min(n, 10_000)):
        talk.member(1_000 + number, Role.READER)
    return Scene(talk, [_revocation(talk, pens[READER])], talk.owner)


def revoked_host(n: int) -> Scene:
    """Revoke a host of n turns, at most TURNS."""
    talk, pens = _talk()
    _turns(talk, pens[HOST], min(n, TURNS))
    return Scene(talk, [_revocation(talk, pens[HOST])], talk.owner)


def earlier_seal(n: int) -> Scene:
    """Seal a request of n, at most TURNS, again in another lane, before its first seal."""
    talk, pens = _talk()
    host, request = pens[HOST], talk.request(pens[HOST])
    again = Pen(HOST)
    heads, ids = talk.granted, (request.id,)
    digest = extended(EMPTY, [request])
    body = Seal(request.id, None, ids, ANY, digest, ANY, (1,), (heads.id,))
    earlier = again.write(body, request, epoch=2, listed=[heads])
    for _ in range(2):  # the first seal of the host's own lane comes behind them
        talk.entries.append(host.write(said(), host.last.get(_lane(host), talk.top)))
    _turns(talk, host, min(n, TURNS), request)
    return Scene(talk, [earlier], again)


def _lane(pen: Pen) -> Lane:
    return Lane(pen.public, 1, Track.CONVERSATION)


def revoked_forks(n: int) -> Scene:
    """Revoke a writer whose lane has n ends, at most 10^4."""
    talk, pens = _talk()
    talk.forked(pens[WRITER], min(n, 10_000))
    return Scene(talk, [_revocation(talk, pens[WRITER])], talk.owner)


def released_entries(n: int) -> Scene:
    """Send the entry for which n others wait, at most LISTED: as many as a link may leave."""
    talk, pens = _talk()
    talk.messages(pens[WRITER], 1)
    begun = len(talk.entries)
    talk.messages(pens[WRITER], min(n, LISTED // 2) + 1)
    first, *rest = talk.entries[begun:]
    del talk.entries[begun:]
    return Scene(talk, [first], pens[WRITER], rest)


def long_seal(n: int) -> Scene:
    """Seal a request behind n messages, at most LISTED."""
    talk, pens = _talk()
    talk.messages(pens[WRITER], min(n, LISTED))
    listed = [e for e in talk.entries if e.header.author == pens[WRITER].public]
    request = talk.request(pens[HOST])
    seal = talk.seal(pens[HOST], request, [*listed, request])
    talk.entries.pop()
    return Scene(talk, [seal], pens[HOST])


def stranger(n: int) -> Scene:
    """Bring a genesis with n grants, at most 2,000: they are judged together."""
    talk, _ = _talk()
    for number in range(min(n, 2_000)):
        talk.member(1_000 + number, Role.READER)
    frame, talk.entries = talk.entries, []
    return Scene(talk, frame, talk.owner)


def _turns(talk: Talk, host: Pen, count: int, first: Entry | None = None) -> None:
    seal: Entry | None = None
    listed: list[Entry] = []
    for _ in range(count):
        request = first if first is not None else talk.request(host, basis=seal)
        first = None
        seal = talk.seal(host, request, [*listed, request], prev=seal)
        listed = [talk.answer(host, seal)]


ATTACKS = (
    revoked_writer, resigned_writer, moved_cut, regained_writer, revocation_beside_grants,
    revoked_host, earlier_seal, revoked_forks, released_entries, long_seal, stranger,
    regained_beside_links, message_beside_links,
)  # fmt: skip


async def _attacked(scene: Scene) -> tuple[float, float]:
    """Return the longest hold of the loop in one frame, and the CPU time of it all, in ms."""
    hub = Hub(HUB, Policy())
    hub.load(scene.talk.id, scene.talk.entries)
    pacer = Pacer(lambda key: Payer(key, key))
    folds = Folds(hub, pacer, lambda _effects: None)
    resumes = Resumes(hub, pacer, folds, _prepare, lambda _effects: None)
    peer = scene.by.public
    for at in range(0, len(scene.waiting), 16):
        hub.begin_push(peer).receive(_entries(scene, scene.waiting[at : at + 16]), 0.0)
    held = hub.shelf.get(scene.talk.id)
    if held is not None:
        held.prepare()
        for _ in range(scene.links):
            link_id = hub.connect(Pen(READER).public, 0.0)
            for message in (Hello((VERSION,)), Open(held.id, held.log.digest)):
                hub.receive(link_id, message, 0.0)
    longest, is_over = 0.0, False

    async def watch() -> None:
        nonlocal longest
        before = process_time()
        while not is_over:
            await asyncio.sleep(0)
            now = process_time()
            longest, before = max(longest, now - before), now

    def receive() -> None:
        hub.begin_push(peer).receive(_entries(scene, scene.frame), 0.0)
        resumes.go_on()

    collecting = asyncio.create_task(Collection(hub.shelf).run())
    await asyncio.sleep(0)  # its first pass
    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    began = process_time()
    await folds.run(peer, receive)
    await resumes.ended()
    taken, is_over = process_time() - began, True
    await watching
    await resumes.stop()
    collecting.cancel()
    await asyncio.gather(collecting, return_exceptions=True)
    assert scene.frame[-1].id in hub.shelf[scene.talk.id].log.entries, "the frame is admitted"
    return 1000 * longest, 1000 * taken


async def _prepare(*_given: object) -> None:
    """Do nothing: none of the links walks through a backlog."""


def _entries(scene: Scene, entries: list[Entry]) -> Entries:
    return Entries(scene.talk.id, tuple(entries))


def measure(sizes: tuple[int, ...], names: list[str], rounds: int = ROUNDS) -> list[Row]:
    """Run the attacks, each at all sizes."""
    rows = []
    for attack in ATTACKS:
        if names and attack.__name__ not in names:
            continue
        for n in sizes:
            scene = attack(n)
            found = [asyncio.run(_attacked(scene)) for _ in range(rounds)]
            hold_ms, cpu_ms = (median(one) for one in zip(*found, strict=True))
            rows.append(Row(attack.__name__, n, hold_ms, cpu_ms))
            say(f"{attack.__name__:28} n={n:<7} hold {hold_ms:7.2f} ms of {cpu_ms:8.1f} ms")
    return rows


def goals(rows: list[Row]) -> list[Goal]:
    """Return the bar: no frame holds the loop longer, at the largest size."""
    last = {row.attack: row for row in rows}
    return [Goal(f"{r.attack}: ms of one hold", r.hold_ms, FRAME_MS, False) for r in last.values()]


def main() -> int:
    """Run all attacks, or those named; return 1 if a bar was missed."""
    parser = sized_parser(__doc__ or "", [one.__name__ for one in ATTACKS])
    arguments = parser.parse_args()
    rows = measure((*SIZES, LONG) if arguments.long else SIZES, arguments.names)
    raw = {"rows": [vars(row) for row in rows]}
    return report("abuse_folds", goals(rows), raw, json_only=arguments.json)


if __name__ == "__main__":
    sys.exit(main())
