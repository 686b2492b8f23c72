"""Random conversations in which members, readers and strangers write what they should not."""

from replica.conversation.next_seal import sealable
from replica.ids import EntryId, Track
from replica.log.body import (
    Body,
    Cut,
    DocumentUpdate,
    Grant,
    Join,
    Member,
    Request,
    Revocation,
    Role,
    Sampling,
)
from replica.log.entry import Conflict, Entry
from replica.order.tail import frontier
from tests.support.stories import Story, answer, cut_at, seal_of
from tests.support.writers import Writer, said

TRACKS = (Track.CONVERSATION, Track.DOCUMENT, Track.MEMBERSHIP)
UNKNOWN_KIND = 77


class Unruly(Story):
    """A story with readers, strangers, late grants and resignations of every form."""

    def __init__(self, seed: int) -> None:
        """Begin with the story's members, and with keys that have no role yet."""
        super().__init__(seed)
        self.readers = [Writer(5), Writer(10)]
        self.strangers = [Writer(8), Writer(9), Writer(11)]
        self.grant(self.owners[0], self.readers[1], Role.READER)
        self.epoch = 100

    def add(self, entry: Entry) -> Entry:
        """Admit an entry, which stays pending while its author lacks a role."""
        self.held.admit(entry)
        self.entries += [e for e in self._admitted() if e.id not in self._seen]
        self._seen |= self.held.log.entries.keys()
        return entry

    def _admitted(self) -> list[Entry]:
        if not self.entries:
            self._seen: set[EntryId] = set()
        return list(self.held.log.entries.values())

    def grow(self, steps: int) -> None:
        """Perform some random steps."""
        for _ in range(steps):
            step = self.random.choices(
                [
                    self._behave,
                    self.serve,
                    self._intrude,
                    self._resign,
                    self._cut,
                    self._grant_late,
                    self._name,
                ],
                [12, 8, 3, 1, 1, 1, 1],
            )[0]
            step()

    def _behave(self) -> None:
        super().grow(1)

    def _outsider(self) -> Writer:
        """Return a reader or a stranger, mostly in an epoch of its own."""
        outsider = self.random.choice([*self.readers, *self.strangers])
        if self.random.random() < 0.3:
            return outsider
        self.epoch += 1
        fresh = Writer(b"", epoch=self.epoch)
        fresh._seed, fresh.key, fresh.public = outsider._seed, outsider.key, outsider.public
        return fresh

    def _some(self, track: Track, count: int) -> list[Entry]:
        on_track = [e for e in self.entries if e.header.track in (Track.ALL, track)]
        return self.random.sample(on_track[-12:], min(len(on_track), count))

    def _intrude(self) -> None:
        """Write an entry of a reader or stranger: uncovered, or pending."""
        author, track = self._outsider(), self.random.choice(TRACKS)
        parents = self._some(track, self.random.randint(1, 3))
        choice = self.random.random()
        if choice < 0.4:
            self.add(author.write(self.held.id, Join(), parents=parents, track=track))
        elif choice < 0.7:
            kind = self.random.choice([UNKNOWN_KIND, None])
            body: Body = said("x") if kind or track == Track.CONVERSATION else Join()
            self.add(author.write(self.held.id, body, parents=parents, kind=kind, track=track))
        elif choice < 0.85:
            body = DocumentUpdate(b"\x00\x00")
            self.add(author.write(self.held.id, body, parents=self._some(Track.DOCUMENT, 2)))
        else:
            target = self.random.choice([*self.readers, *self.strangers, *self.writers])
            body = Member(Grant(target.public, self.random.choice(list(Role))))
            self.add(author.write(self.held.id, body, parents=self._some(Track.MEMBERSHIP, 2)))

    def _resign(self) -> None:
        """Write a resignation, of a reader mostly, in the fixed form or another."""
        author = self._outsider() if self.random.random() < 0.7 else self._member_in_new_epoch()
        parents = [self.genesis]
        if self.random.random() < 0.4:
            parents = self._some(Track.MEMBERSHIP, self.random.randint(1, 4))
        kept = self._cuts(author) if self.random.random() < 0.3 else []
        body = Member(Revocation(author.public, tuple(map(cut_at, kept))))
        self.add(author.write(self.held.id, body, parents=parents, listed=kept))

    def _member_in_new_epoch(self) -> Writer:
        member = self.random.choice([*self.writers[2:], *self.hosts])
        self.epoch += 1
        fresh = Writer(b"", epoch=self.epoch)
        fresh._seed, fresh.key, fresh.public = member._seed, member.key, member.public
        return fresh

    def _cuts(self, key: Writer) -> list[Entry]:
        mine = [e for e in self.entries if e.header.author == key.public]
        return self.random.sample(mine, min(len(mine), self.random.randint(0, 3)))

    def _cut(self) -> None:
        """Revoke any key, keeping any entries of it, or naming those of others."""
        author = self.random.choice(self.owners)
        target = self.random.choice([*self.readers, *self.everyone])
        kept = self._cuts(target)
        cuts = [cut_at(entry) for entry in kept]
        if self.random.random() < 0.2:
            other = self.random.choice(self.entries)
            kept, cuts = [*kept, other], [*cuts, cut_at(other)]
        if cuts and self.random.random() < 0.1:
            cuts[0] = Cut(cuts[0].epoch, cuts[0].track, cuts[0].seq + 1, cuts[0].id)
        body = Member(Revocation(target.public, tuple(cuts)))
        parents = self._some(Track.MEMBERSHIP, 2)
        self.add(author.write(self.held.id, body, parents=parents, listed=kept))

    def _grant_late(self) -> None:
        """Grant a role to a reader or stranger, which has written before."""
        target = self.random.choice([*self.readers, *self.strangers])
        body = Member(Grant(target.public, self.random.choice([*Role, Role.READER])))
        author = self.random.choice([*self.owners, self.writers[2]])
        self.add(author.write(self.held.id, body, parents=self._some(Track.MEMBERSHIP, 2)))

    def _name(self) -> None:
        """Let a member follow whatever there is, uncovered entries included."""
        author, track = self.random.choice(self.writers), self.random.choice(TRACKS)
        parents = self._some(track, 3)
        self.add(author.write(self.held.id, Join(), parents=parents, track=track))


class Deep(Unruly):
    """An unruly story with many turns in a row, so that its chains of seals are long."""

    def grow(self, steps: int) -> None:
        """Perform some random steps."""
        for _ in range(steps):
            if self.random.random() < 0.5:
                self._take_turn()
            else:
                super().grow(1)

    def _take_turn(self) -> None:
        """Ask behind the deepest seal, and let the host seal and answer, if it still may."""
        order, log = self.held.order, self.held.log
        tip = max(order.tips(), key=lambda node: node.depth, default=None)
        parents = self.at(*frontier(order, tip))
        basis = log.entries[tip.id] if tip is not None else None
        host, conflict = self.random.choice(self.hosts), self.random.choice(list(Conflict))
        body = Request(host.public, Sampling())
        asker = self.random.choice(self.owners)
        request = self.add(
            asker.write(self.held.id, body, parents=parents, basis=basis, conflict=conflict)
        )
        found = sealable(self.held, request.id) if request.id in log.entries else None
        if found is None:
            return
        seal = seal_of(self.held, request.id, found.entries, tip.id if tip is not None else None)
        self._seal(host, seal)
        node = order.nodes.get(order.seal_of.get(request.id, request.id))
        if node is not None:
            at = self.at(node.id)
            self.add(host.write(self.held.id, answer(), parents=at, basis=at[0]))
