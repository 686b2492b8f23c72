"""Random conversations: well-formed entries, valid and void, by random authors."""

import random

from replica.conversation.conversation import Conversation
from replica.conversation.next_seal import open_requests, sealable
from replica.ids import Digest, EntryId, Track
from replica.log.body import (
    Cancel,
    Cut,
    FinishReason,
    Generation,
    Grant,
    Member,
    Request,
    Revocation,
    Role,
    Sampling,
    Seal,
    Text,
)
from replica.log.entry import Conflict, Entry
from replica.log.kinds import Kind
from replica.order.context import context_digest
from replica.order.coverage import coverage
from replica.order.tail import frontier
from tests.support.writers import Writer, said

PROFILE = Digest(bytes(32))


def seal_of(
    held: Conversation,
    request: EntryId,
    entries: tuple[EntryId, ...],
    prev_seal: EntryId | None,
    *,
    heads: tuple[EntryId, ...] | None = None,
    digest: Digest | None = None,
) -> Seal:
    """Return a seal's body; its context digest is correct if `prev_seal` counts."""
    parent = held.order.nodes.get(prev_seal) if prev_seal is not None else None
    return Seal(
        request=request,
        prev_seal=prev_seal,
        entries=entries,
        profile=PROFILE,
        context_digest=digest or context_digest(held.log, parent, entries),
        render_digest=PROFILE,
        tokens_per_entry=(1,) * len(entries),
        membership_heads=held.log.membership_heads() if heads is None else heads,
    )


def answer(words: str = "Yes.", reason: FinishReason = FinishReason.STOP) -> Generation:
    """Return a generation of one text part."""
    return Generation((1, 2), (Text(words),), len(words), reason)


def cut_at(entry: Entry) -> Cut:
    """Return the cut that keeps a lane up to `entry`."""
    header = entry.header
    return Cut(header.epoch, header.track, header.seq, entry.id)


class Story:
    """One conversation, grown by random steps; `entries` in the order they were written."""

    def __init__(self, seed: int) -> None:
        """Begin with two owners, two writers, a reader and two hosts."""
        self.random = random.Random(seed)
        self.owners = [Writer(1), Writer(2)]
        self.writers = [*self.owners, Writer(3), Writer(4)]
        self.hosts = [Writer(6), Writer(7)]
        self.everyone = [*self.writers, Writer(5), *self.hosts, Writer(6, epoch=2)]
        genesis = self.owners[0].genesis([o.public for o in self.owners])
        self.held = Conversation(genesis.conversation)
        self.entries: list[Entry] = []
        self.add(genesis)
        for number, role in ((3, "WRITER"), (4, "WRITER"), (5, "READER"), (6, "HOST"), (7, "HOST")):
            self.grant(self.owners[0], Writer(number), Role[role])

    @property
    def genesis(self) -> Entry:
        """The first entry."""
        return self.entries[0]

    def add(self, entry: Entry) -> Entry:
        """Admit an entry that was just written."""
        self.held.admit(entry)
        assert entry.id in self.held.log.entries, "stories are written in causal order"
        self.entries.append(entry)
        return entry

    def at(self, *ids: EntryId) -> list[Entry]:
        """Look entries up."""
        return [self.held.log.entries[i] for i in ids]

    def grow(self, steps: int) -> None:
        """Perform some random steps."""
        for _ in range(steps):
            step = self.random.choices(
                [
                    self.say,
                    self.ask,
                    self.serve,
                    self.cancel,
                    self.forge,
                    self.fork_lane,
                    self.change_members,
                ],
                [6, 4, 8, 1, 3, 1, 1],
            )[0]
            step()

    def _parents(self) -> list[Entry]:
        order = self.held.order
        if self.random.random() < 0.7:
            tips = order.tips()
            tip = self.random.choice(tips) if tips else None
            return self.at(*frontier(order, tip))
        on_track = [e for e in self.entries if e.header.track in (Track.ALL, Track.CONVERSATION)]
        return self.random.sample(on_track, min(len(on_track), self.random.randint(1, 2)))

    def _basis(self) -> Entry | None:
        seals = [e for e in self.entries if e.header.kind == Kind.SEAL]
        tips = self.held.order.tips()
        if tips and self.random.random() < 0.8:
            return self.held.log.entries[self.random.choice(tips[-2:]).id]
        return self.random.choice(seals) if seals and self.random.random() < 0.5 else None

    def say(self) -> None:
        """Write a message of a random author at random parents."""
        author = self.random.choice(self.everyone if self.random.random() < 0.2 else self.writers)
        self.add(author.write(self.held.id, said("word"), parents=self._parents()))

    def ask(self) -> None:
        """Write a request to a host."""
        self.ask_behind(self._parents(), self._basis())

    def cancel(self) -> None:
        """Write a CANCEL of a request, mostly followed by another request."""
        requests = [e for e in self.entries if e.header.kind == Kind.REQUEST]
        if not requests:
            return
        request = self.random.choice(requests[-3:])
        requester = next(w for w in self.everyone if w.public == request.header.author)
        author = requester if self.random.random() < 0.6 else self.random.choice(self.writers)
        cancel = self.add(author.write(self.held.id, Cancel(), parents=[request]))
        if self.random.random() < 0.7:
            seal = self.held.order.seal_of.get(request.id)
            basis = self.held.log.entries[seal] if seal is not None else self._basis()
            self.ask_behind([cancel, *self._parents()[:1]], basis)

    def ask_behind(self, parents: list[Entry], basis: Entry | None) -> None:
        """Write a request to a host with the given parents."""
        body = Request(self.random.choice(self.hosts).public, Sampling())
        author = self.random.choice(self.writers)
        conflict = self.random.choice([Conflict.FORK, Conflict.QUEUE])
        self.add(author.write(self.held.id, body, parents=parents, basis=basis, conflict=conflict))

    def serve(self) -> None:
        """Let a host answer a request it has sealed, or seal an open one."""
        order = self.held.order
        host = self.random.choice([*self.hosts, self.everyone[-1]])
        for node in list(order.nodes.values()):
            answers = self.random.random() < 0.6  # else it is offline for now
            if node.generation is None and node.author == host.public and answers:
                parents = self.at(node.id)
                self.add(host.write(self.held.id, answer(), parents=parents, basis=parents[0]))
                return
        for request in open_requests(self.held, host.public):
            found = sealable(self.held, request)
            if found is not None and request not in order.seal_of:
                prev_seal = found.parent.id if found.parent else None
                self._seal(host, seal_of(self.held, request, found.entries, prev_seal))
                return

    def _seal(self, host: Writer, body: Seal) -> None:
        listed = [body.request, *body.entries, *body.membership_heads]
        listed += [body.prev_seal] if body.prev_seal else []
        parents = self.at(body.request)
        self.add(host.write(self.held.id, body, parents=parents, listed=self.at(*listed)))

    def forge(self) -> None:
        """Write an entry that may be void."""
        author = self.random.choice([*self.hosts, *self.writers, self.everyone[-1]])
        requests = [e for e in self.entries if e.header.kind == Kind.REQUEST]
        seals = [e for e in self.entries if e.header.kind == Kind.SEAL]
        if seals and self.random.random() < 0.4:
            parents = [self.random.choice(seals)]
            self.add(author.write(self.held.id, answer("No."), parents=parents))
        elif requests and self.random.random() < 0.2:
            parents = [self.random.choice(requests)]
            body = self.random.choice([Cancel(), answer()])
            self.add(author.write(self.held.id, body, parents=parents))
        elif requests:
            request = self.random.choice(requests)
            prev_seal = self.random.choice([None, *(s.id for s in seals)])
            if self.random.random() < 0.5:
                prev_seal = request.header.basis
            listed = self.random.sample(self.entries[1:], 2)
            entries = tuple(dict.fromkeys([*(e.id for e in listed), request.id]))
            node = self.held.order.nodes.get(prev_seal) if prev_seal else None
            if node is None or self.random.random() < 0.5:
                heads = self.held.log.membership_heads()
                membership = self.held.log.roster.at(heads)
                closest = node.generation if node else None
                entries = (
                    coverage(
                        self.held.log,
                        self.held.order.nodes,
                        request.id,
                        node,
                        closest,
                        membership,
                    ).entries
                    or entries
                )
            self._seal(author, seal_of(self.held, request.id, entries, prev_seal))

    def fork_lane(self) -> None:
        """Let an author continue from a restored backup."""
        author = self.random.choice([*self.writers, *self.hosts])
        last = author.last(self.held.id)
        if last is None:
            return
        twin = author.restored()
        self.add(twin.write(self.held.id, said("again"), parents=self._parents()))
        self.say()
        self.everyone.append(twin)

    def change_members(self) -> None:
        """Write a grant, a revocation or a resignation, or one without the right to it."""
        author = self.random.choice([*self.owners, *self.owners, *self.everyone])
        target = self.random.choice([*self.everyone, Writer(8), Writer(9)])
        if self.random.random() < 0.5:
            self.grant(author, target, self.random.choice(list(Role)))
            return
        mine = [e for e in self.entries if e.header.author == target.public]
        kept = self.random.sample(mine, min(len(mine), self.random.randint(0, 3)))
        self.revoke(author, target, kept)

    def _membership_parents(self) -> list[Entry]:
        return self.at(*self.held.log.membership_heads()) or [self.genesis]

    def grant(self, author: Writer, target: Writer, role: Role) -> Entry:
        """Write a grant."""
        body = Member(Grant(target.public, role))
        return self.add(author.write(self.held.id, body, parents=self._membership_parents()))

    def revoke(self, author: Writer, target: Writer, kept: list[Entry]) -> Entry:
        """Write a revocation that keeps lanes up to the entries given."""
        body = Member(Revocation(target.public, tuple(cut_at(e) for e in kept)))
        parents = self._membership_parents()
        return self.add(author.write(self.held.id, body, parents=parents, listed=kept))
