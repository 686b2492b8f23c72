"""Random logs by seed, with the results of the naive folds as the expected answers."""

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.conformance.naive_answers import expected_fold, expected_order
from antiphon.conformance.questions import ORDERS, Case, arranged
from replica.conversation import Conversation, seal_by_coverage
from replica.ids import ConversationId, Digest, EntryId, Track
from replica.log import (
    Body,
    Cancel,
    Conflict,
    Cut,
    Entry,
    FinishReason,
    Generation,
    Genesis,
    Grant,
    Header,
    Join,
    Kind,
    Log,
    Member,
    Message,
    Request,
    Revocation,
    Role,
    Sampling,
    Seal,
    Speaker,
    Text,
    body_digest,
    codec,
    entry_id,
    kind_of,
    listed_ids,
    public_key,
    rules_of,
    salted,
    send_order,
    sign,
)
from replica.order import context_digest, frontier

STEPS = 40
NAMES = ("ada", "bea", "bob", "cat", "eve", "hal", "ida", "zed")
FOLDED = ("ORD-2", "ORD-3", "ORD-4", "ORD-5", "ORD-13", "PROM-1", "MODEL-1")
ORDERED = ("ORD-6", "ORD-7", "ORD-8", "ORD-9", "ORD-10", "PROM-1", "MODEL-1")
_ZEROS = Digest(bytes(32))


class _Writer:
    """A key that writes its lanes without gaps, and forks them where it is told to."""

    def __init__(self, name: str) -> None:
        self.key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
        self.public = public_key(self.key)
        self.last: dict[tuple[int, int], Entry] = {}
        self.epoch = 1 + self.public[0] % 2 * 2**63
        """Of about half of the keys one that no double holds, and later the next ones."""


class RandomLog:
    """One conversation of owners, writers, a reader, hosts and a stranger."""

    def __init__(self, seed: int) -> None:
        """Begin with the genesis and some grants."""
        self.random = random.Random(seed)  # noqa: S311  # the same seed gives the same log
        self.ada, self.bea, self.bob, self.cat, self.eve, self.hal, self.ida, self.zed = (
            _Writer(f"{seed} {name}") for name in NAMES
        )
        self.owners, self.hosts = [self.ada, self.bea], [self.hal, self.ida]
        self.writers = [self.ada, self.bea, self.bob, self.cat]
        self.everyone = [*self.writers, self.eve, *self.hosts, self.zed]
        self.entries: list[Entry] = []
        body = Genesis((self.ada.public, self.bea.public))
        genesis = self._entry(self.ada, body, [], conversation=None)
        self.held = Conversation(genesis.conversation)
        self._add(genesis)
        roles = ((self.bob, Role.WRITER), (self.cat, Role.WRITER), (self.eve, Role.READER))
        for key, role in (*roles, (self.hal, Role.HOST), (self.ida, Role.HOST)):
            self._member(self.ada, Grant(key.public, role))

    @property
    def log(self) -> Log:
        """All admitted entries."""
        return self.held.log

    def grow(self) -> None:
        """Take one random step."""
        steps: list[Callable[[], None]]
        steps = [self._say, self._ask, self._serve, self._answer, self._cancel, self._forge,
                 self._fork, self._change, self._say_beside,
                 partial(_ask_beside, self)]  # fmt: skip
        self.random.choices(steps, [5, 5, 7, 7, 4, 4, 1, 3, 3, 2])[0]()

    def _add(self, entry: Entry) -> Entry:
        self.held.admit(entry)
        self.entries.append(entry)
        return entry

    def _of(self, kind: Kind) -> list[Entry]:
        return [e for e in self.log.entries.values() if e.header.kind == kind]

    def _parents(self) -> list[Entry]:
        order, entries = self.held.order, self.log.entries
        if self.random.random() < 0.6:
            tips = order.tips()
            return [entries[i] for i in frontier(order, self.random.choice(tips) if tips else None)]
        tracks = (Track.ALL, Track.CONVERSATION)
        near = [e for e in entries.values() if e.header.track in tracks]
        return self.random.sample(near[-8:], min(len(near), self.random.randint(1, 3)))

    def _say(self) -> None:
        author = self.random.choice(self.everyone if self.random.random() < 0.3 else self.writers)
        body: Body = Message(Speaker.USER, (Text("word"),))
        if self.random.random() < 0.2:
            body = Join()
        self._write(author, body, self._parents())

    def _say_beside(self) -> None:
        """Say something that follows any entries, on whatever branches they are."""
        tracks = (Track.ALL, Track.CONVERSATION)
        entries = [e for e in self.log.entries.values() if e.header.track in tracks]
        parents = self.random.sample(entries, min(len(entries), self.random.randint(1, 2)))
        body = Message(Speaker.USER, (Text("beside"),))
        self._write(self.random.choice(self.everyone), body, parents)

    def _ask(self) -> None:
        seals = self._of(Kind.SEAL)
        tips = self.held.order.tips()
        basis = self.log.entries[self.random.choice(tips).id] if tips else None
        if seals and self.random.random() < 0.2:
            basis = self.random.choice([None, *seals])
        body = Request(self.random.choice(self.hosts).public, Sampling())
        conflict = self.random.choice([Conflict.QUEUE, Conflict.QUEUE, Conflict.FORK])
        author = self.random.choice(self.writers)
        self._write(author, body, self._parents(), basis=basis, conflict=conflict)

    def _serve(self) -> None:
        for request in sorted(self._of(Kind.REQUEST), key=lambda _: self.random.random()):
            host = next((h for h in self.hosts if self._asks(request, h)), None)
            if host is None or request.id in self.held.order.seal_of:
                continue
            found = seal_by_coverage(self.held, request.id)
            if found is not None and found.entries:
                prev_seal = found.parent.id if found.parent is not None else None
                self._seal(host, request, prev_seal, found.entries, found.membership_heads)
                return

    def _asks(self, request: Entry, host: _Writer) -> bool:
        body = self.log.body(request.id)
        return isinstance(body, Request) and body.host == host.public

    def _seal(
        self,
        host: _Writer,
        request: Entry,
        prev_seal: EntryId | None,
        entries: tuple[EntryId, ...],
        heads: tuple[EntryId, ...],
    ) -> None:
        parent = self.held.order.nodes.get(prev_seal) if prev_seal is not None else None
        digest = context_digest(self.log, parent, entries)
        body = Seal(
            request.id, prev_seal, entries, _ZEROS, digest, _ZEROS, (1,) * len(entries), heads
        )
        self._write(host, body, [request])

    def _answer(self) -> None:
        """Answer a seal, or refuse a request without one."""
        refuses = self.random.random() < 0.1
        entries = self._of(Kind.REQUEST)[-4:] if refuses else self._of(Kind.SEAL)
        open_ones = [e for e in entries if not self.log.children(e.id)]
        if not open_ones:
            return
        asked = self.random.choice(open_ones)
        if refuses:
            host = next((h for h in self.hosts if self._asks(asked, h)), self.hal)
            body = Generation((1,), (Text("no"),), 2, FinishReason.REFUSED)
            self._write(host, body, [asked])
            return
        host = next((h for h in self.hosts if h.public == asked.header.author), self.hal)
        body = Generation((1,), (Text("yes"),), 3, FinishReason.STOP)
        self._write(host, body, [asked], basis=asked)

    def _cancel(self) -> None:
        """Cancel a request, or withdraw a message, also where the author may not."""
        found = self._of(self.random.choice([Kind.REQUEST, Kind.MESSAGE, Kind.MESSAGE]))
        if found:
            ended = self.random.choice(found if self.random.random() < 0.4 else found[-3:])
            author = self.random.choice(self.everyone)
            if self.random.random() < 0.5:
                author = next(w for w in self.everyone if w.public == ended.header.author)
            self._write(author, Cancel(), [ended])

    def _forge(self) -> None:
        """Write a seal or an answer that mostly does not count."""
        requests, seals = self._of(Kind.REQUEST), self._of(Kind.SEAL)
        if not requests:
            return
        request = self.random.choice(requests)
        author = self.random.choice([*self.hosts, *self.writers])
        if self.random.random() < 0.3:
            body = Generation((1,), (Text("no"),), 2, FinishReason.STOP)
            self._write(author, body, [self.random.choice([request, *seals])])
            return
        found = seal_by_coverage(self.held, request.id)
        entries = found.entries if found is not None else ()
        others = self.random.sample(self._of(Kind.MESSAGE), min(1, len(self._of(Kind.MESSAGE))))
        if not entries or self.random.random() < 0.5:
            entries = tuple(dict.fromkeys([*(e.id for e in others), *entries, request.id]))
        prev = self.random.choice([None, request.header.basis, *(e.id for e in seals)])
        changes = self._of(Kind.MEMBER)
        heads = tuple(sorted(e.id for e in self.random.sample(changes, min(2, len(changes)))))
        self._seal(author, request, prev, entries, heads)

    def _fork(self) -> None:
        author = self.random.choice(self.everyone)
        if self.random.random() < 0.5:
            author.epoch += 1
            return
        lane = (author.epoch, Track.CONVERSATION)
        before = author.last.get(lane)
        if before is not None and before.header.prev is not None:
            author.last[lane] = self.log.entries.get(before.header.prev, before)

    def _change(self) -> None:
        author = self.random.choice([*self.owners, *self.owners, *self.everyone])
        target = self.random.choice([*self.everyone, author])
        if self.random.random() < 0.4:
            role = self.random.choice([*Role, 9])
            self._member(author, Grant(target.public, role))
            return
        mine = [e for e in self.log.entries.values() if e.header.author == target.public]
        kept = self.random.sample(mine, min(len(mine), self.random.randint(0, 3)))
        kept = [e for e in kept if e.header.kind != Kind.GENESIS]
        cuts = [Cut(e.header.epoch, e.header.track, e.header.seq, e.id) for e in kept]
        if cuts and self.random.random() < 0.1:
            cuts[0] = Cut(cuts[0].epoch, cuts[0].track, cuts[0].seq + 1, cuts[0].id)
        self._member(author, Revocation(target.public, tuple(cuts)))

    def _member(self, author: _Writer, change: Grant | Revocation) -> None:
        heads = [self.log.entries[i] for i in self.log.membership_heads()] or [self.entries[0]]
        if self.random.random() < 0.3:
            heads = [self.entries[0]]
        self._write(author, Member(change), heads)

    def _write(
        self,
        author: _Writer,
        body: Body,
        parents: Sequence[Entry],
        basis: Entry | None = None,
        conflict: int = 0,
    ) -> None:
        self._add(
            self._entry(
                author, body, parents, basis=basis, conflict=conflict, conversation=self.held.id
            )
        )

    def _entry(
        self,
        author: _Writer,
        body: Body,
        parents: Sequence[Entry],
        *,
        basis: Entry | None = None,
        conflict: int = 0,
        conversation: ConversationId | None,
    ) -> Entry:
        kind = kind_of(body)
        own = rules_of(kind).track
        track = own if own is not None else parents[0].header.track or Track.CONVERSATION
        near = [p for p in parents if p.header.track in (Track.ALL, track)]
        parents = near or self.entries[:1]
        prev = author.last.get((author.epoch, track))
        named = [e for e in (prev, basis, *parents) if e is not None]
        lamports = [e.header.lamport for e in named]
        lamports += [self.log.entries[i].header.lamport for i in listed_ids(body)]
        salt = hashlib.sha256(f"{len(self.entries)}".encode()).digest()[:16]
        data = salted(salt, codec.encode_body(body))
        header = Header(
            conversation=conversation,
            author=author.public,
            epoch=author.epoch,
            track=track,
            seq=prev.header.seq + 1 if prev is not None else 0,
            prev=prev.id if prev is not None else None,
            parents=tuple(sorted({p.id for p in parents})),
            basis=basis.id if basis is not None else None,
            lamport=1 + max(lamports) if lamports else 0,
            kind=kind,
            critical=False,
            body_digest=body_digest(data),
            body_bytes=len(data),
            create_time_ms=1_700_000_000_000 + len(self.entries),
            conflict=conflict,
        )
        raw = codec.encode_header(header)
        entry = Entry(raw, sign(raw, author.key), data, entry_id(raw), codec.decode_header(raw))
        author.last[author.epoch, track] = entry
        return entry


def _ask_beside(story: RandomLog) -> None:
    """Ask beside an answer, behind the answer, and twice behind what was asked beside it."""
    answers = [e for e in story._of(Kind.GENERATION) if e.header.basis is not None]
    if not answers:
        return
    answer = story.random.choice(answers[-3:])
    seal = story.log.entries[answer.header.basis or answer.id]
    asked = story.log.entries[seal.header.parents[0]]

    def ask(before: Entry, conflict: Conflict) -> Entry:
        # A request that names a writer gets no seal; what follows it has the first that lists it.
        host = story.random.choice([*story.hosts, *story.hosts, story.cat])
        author, body = story.random.choice(story.writers), Request(host.public, Sampling())
        story._write(author, body, [before], basis=seal, conflict=conflict)
        return story.entries[-1]

    beside = ask(asked, Conflict.FORK)
    ask(answer, Conflict.QUEUE)
    ask(beside, Conflict.FORK)
    ask(beside, Conflict.QUEUE)


def random_cases(seed: int) -> Iterator[Case]:
    """Yield the questions about one random log, with the answers of the naive folds."""
    story = RandomLog(seed)
    for _ in range(STEPS):
        story.grow()
    raw = [_raw(entry) for entry in story.entries]
    fold, order = expected_fold(story.log), expected_order(story.log)
    seals, tips = sorted(order["seals"]), [one["tip"] for one in order["tails"]]
    asked = {
        "seals": seals,
        "answers": sorted(order["answers"]),
        "sealable": sorted(order["sealable"]),
        "tails": tips,
    }
    for number in range(ORDERS):
        given = {"conversation": story.held.id.hex(), "entries": arranged(raw, number)}
        name = f"random-{seed}"
        yield Case(f"{name}/fold-{number}", FOLDED, {"ask": "fold", **given}, fold)
        yield Case(f"{name}/order-{number}", ORDERED, {"ask": "order", **given, **asked}, order)
    yield from _of_the_covered(story, fold, order, f"random-{seed}")


def _of_the_covered(
    story: RandomLog, fold: dict[str, Any], order: dict[str, Any], name: str
) -> Iterator[Case]:
    """Yield the questions about the covered entries alone, in send order (ORD-18)."""
    covered = set(fold["covered"])
    held = [e for e in story.log.entries.values() if e.id.hex() in covered]
    raw = [_raw(entry) for entry in sorted(held, key=send_order)]
    given = {"conversation": story.held.id.hex(), "entries": raw}
    visible = [i for i in fold["visible"] if i in covered]
    same = {**fold, "visible": visible, "pending": []}
    yield Case(f"{name}/fold-covered", ("ORD-18",), {"ask": "fold", **given}, same)
    seals = {i: seal for i, seal in order["seals"].items() if i in covered}
    asked = {"seals": sorted(seals), "answers": sorted(order["answers"])}
    asked |= {"sealable": sorted(order["sealable"])}
    asked |= {"tails": [one["tip"] for one in order["tails"]]}
    expected = {**order, "seals": seals}
    yield Case(f"{name}/order-covered", ("ORD-18",), {"ask": "order", **given, **asked}, expected)


def _raw(entry: Entry) -> dict[str, str | None]:
    body = None if entry.body is None else entry.body.hex()
    return {"header": entry.header_bytes.hex(), "signature": entry.signature.hex(), "body": body}
