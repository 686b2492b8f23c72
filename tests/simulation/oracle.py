"""Books kept apart from the core: what was written, stored, acked, read, and what must follow.

Nothing here asks Log, Order or Membership for an answer it could get wrong
together with them; it only compares their answers with its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from replica.conversation.conversation import Conversation
from replica.conversation.drafts import Draft
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.link.messages import Fault
from replica.log.body import Body, Genesis, Grant, Member, Revocation, Role, Seal
from replica.log.entry import Entry
from replica.log.kinds import Kind
from replica.order.tail import tail
from tests.simulation.disk import Disk

EXPECTED_FAULTS = {
    "CONVERSATION_NOT_FOUND", "LANES_DIVERGED", "PENDING_FULL", "LINK_IDLE", "STORE_FULL",
}  # fmt: skip
"""What honest replicas may be told; anything else is a bug of ours."""

WRITERS = {Role.WRITER, Role.OWNER}
ROLES: dict[int, set[Role]] = {
    Kind.GENESIS: {Role.OWNER},
    Kind.MEMBER: {Role.OWNER},
    Kind.MESSAGE: WRITERS,
    Kind.REQUEST: WRITERS,
    Kind.CANCEL: WRITERS,
    Kind.DOCUMENT: WRITERS,
    Kind.SEAL: {Role.HOST},
    Kind.GENERATION: {Role.HOST},
    Kind.JOIN: set(Role),
}


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True, slots=True)
class Record:
    """One entry as its author wrote it."""

    entry: Entry
    body: Body
    writer: str

    @property
    def named(self) -> tuple[EntryId, ...]:
        """Ids without which the entry can't be admitted."""
        h = self.entry.header
        ids = [i for i in (h.prev, h.basis, *h.parents) if i is not None]
        if isinstance(self.body, Seal):
            ids += [self.body.request, *self.body.entries, *self.body.membership_heads]
            ids += [self.body.prev_seal] if self.body.prev_seal is not None else []
        if isinstance(self.body, Member) and isinstance(self.body.change, Revocation):
            ids += [cut.id for cut in self.body.change.cuts]
        return tuple(ids)


@dataclass(frozen=True, slots=True)
class View:
    """Everything replicas must agree on about one conversation."""

    digest: bytes
    covered: frozenset[EntryId]
    visible: frozenset[EntryId]
    contexts: tuple[tuple[EntryId, tuple[EntryId, ...]], ...]
    answers: tuple[tuple[EntryId, EntryId | None], ...]
    tips: tuple[EntryId, ...]
    tails: tuple[tuple[EntryId, ...], ...]


def view_of(held: Conversation) -> View:
    """Read the core's verdicts."""
    log, order = held.log, held.order
    covered = frozenset(log.covered())
    seals = sorted(order.nodes)
    tips = order.tips()
    return View(
        log.digest,
        covered,
        frozenset(i for i in covered if log.membership.is_visible(log.entries[i])),
        tuple((s, tuple(e.id for e in order.context(s))) for s in seals),
        tuple((order.nodes[s].seal.request, order.nodes[s].generation) for s in seals),
        tuple(t.id for t in tips),
        tuple(tuple(e.id for e in tail(order, t)) for t in (None, *tips)),
    )


def differences(a: View, b: View) -> str:
    """Name the fields in which two views differ."""
    names = [n for n in View.__slots__ if getattr(a, n) != getattr(b, n)]
    lacks = {
        n: sorted(i.hex()[:6] for i in getattr(a, n) ^ getattr(b, n))
        for n in names
        if n in ("covered", "visible")
    }
    return f"{names} {lacks}"


class Oracle:
    """The books of one run."""

    def __init__(self, *, may_fork: bool, may_repeat: bool) -> None:
        self.books: dict[EntryId, Record] = {}
        self.accepted_by: dict[str, set[EntryId]] = {}
        self.acks = 0
        self.forks = 0
        self._may_fork = may_fork
        self._may_repeat = may_repeat
        self._acked: dict[EntryId, bool] = {}
        self._places: dict[tuple[bytes, bytes, int, int, int], EntryId] = {}
        self._answers: dict[EntryId, EntryId] = {}
        self._contexts: dict[EntryId, tuple[EntryId, ...]] = {}
        self._drafts: dict[tuple[EntryId, int], tuple[int, ...]] = {}
        self._read: dict[tuple[str, int, EntryId, int], int] = {}

    # --- as it happens ------------------------------------------------------------

    def authored(self, name: str, entry: Entry, body: Body) -> None:
        """Book an entry the moment it is signed."""
        self.books[entry.id] = Record(entry, body, name)

    def durable(self, name: str, entry: Entry) -> None:
        """Take an entry on a disk: only now is it part of anyone's history."""
        record = self.books.get(entry.id)
        if record is None:
            return  # check_stores names it
        h = entry.header
        if record.writer != name:
            place = (entry.conversation, h.author, h.epoch, h.track, h.seq)
            if self._places.setdefault(place, entry.id) != entry.id:
                self.forks += 1
                if not self._may_fork:
                    raise Violation(f"{record.writer} showed two entries at one place: {h.seq}")
        elif h.kind == Kind.GENERATION and not self._may_repeat:
            answered = self.books[h.parents[0]].body
            # A refusal follows the request itself.
            request = answered.request if isinstance(answered, Seal) else h.parents[0]
            if self._answers.setdefault(request, entry.id) != entry.id:
                raise Violation(f"{name} answered a request twice")

    def sealed(self, entry: Entry, held: Conversation) -> None:
        """Take a seal an honest host has just written: it must count."""
        if entry.id not in held.order.nodes and not self._may_repeat:
            reason = held.order.void.get(entry.id)
            raise Violation(f"the host's own seal {entry.id.hex()[:6]} is void: {reason}")

    def accepted(self, name: str, entries: Iterable[Entry], held: Conversation | None) -> None:
        """Book what a replica told its application it holds."""
        seen = self.accepted_by.setdefault(name, set())
        for entry in entries:
            self._check_authored(name, entry)
            seen.add(entry.id)
            if entry.header.kind == Kind.SEAL and held is not None and entry.id in held.order.nodes:
                context = tuple(e.id for e in held.order.context(entry.id))
                if self._contexts.setdefault(entry.id, context) != context:
                    raise Violation(f"{name} shows another context for {entry.id.hex()[:6]}")

    def _check_authored(self, name: str, entry: Entry) -> None:
        record = self.books.get(entry.id)
        if record is None:
            raise Violation(f"{name} holds {entry.id.hex()[:6]}, which nobody wrote")
        ours, theirs = record.entry, entry
        if (ours.header_bytes, ours.signature) != (theirs.header_bytes, theirs.signature):
            raise Violation(f"{name} holds other bytes of {entry.id.hex()[:6]}")
        if ours.body != theirs.body:
            raise Violation(f"{name} holds another body of {entry.id.hex()[:6]}")

    def acked(self, name: str, positions: Iterable[Position], hub_disk: Disk) -> None:
        """Book an ack; it must have been durable at the hub, lane ancestors included."""
        for position in positions:
            at: EntryId | None = position.id
            while at is not None and at not in self._acked:
                if at not in hub_disk.ever:
                    raise Violation(f"{name} was acked {at.hex()[:6]}, never durable at the hub")
                self._acked[at] = True
                self.acks += 1
                at = self.books[at].entry.header.prev

    def failed(self, name: str, fault: Fault) -> None:
        """Take a refusal: honest replicas never cause one of most kinds."""
        if fault.reason not in EXPECTED_FAULTS:
            raise Violation(f"{name} was told {fault.reason}: {fault.detail}")

    def restored(self, name: str, disk: Disk, held: Conversation) -> None:
        """Take a restart: memory must hold exactly what the disk does."""
        stored = [entry.id for entry in disk.conversations()[held.id]]
        if len(stored) != len(set(stored)):
            raise Violation(f"{name} stored an entry twice")
        if set(stored) != held.log.entries.keys() | held.log.pending.keys():
            raise Violation(f"{name} did not admit again what it had stored")
        if held.log.pending and not disk.lost:
            raise Violation(f"{name} waits for what it never lost")
        if held.is_blocked is not self._is_blocked(held, disk):
            raise Violation(f"{name} is blocked: {held.is_blocked}")

    def _is_blocked(self, held: Conversation, disk: Disk) -> bool:
        """Say whether a membership entry is lost, or follows what is."""
        lacking = {i for i, entry in disk.lost.items() if entry.conversation == held.id}
        todo = disk.conversations()[held.id]
        while behind := [e for e in todo if lacking.intersection(self.books[e.id].named)]:
            lacking.update(entry.id for entry in behind)
            todo = [e for e in todo if e.id not in lacking]
        kinds = (Kind.GENESIS, Kind.MEMBER)
        if EntryId(held.id) in lacking:
            return True
        return any(self.books[i].entry.header.kind in kinds for i in lacking)

    def taken_away(self, name: str, disk: Disk) -> None:
        """Take a rollback, damage or a total loss: what is left still counts as accepted."""
        self.accepted_by[name] = disk.ids()

    def draft_begun(self, request: EntryId, run: int, token_ids: tuple[int, ...]) -> None:
        """Book what a host is about to stream."""
        self._drafts[request, run] = token_ids

    def draft_read(self, name: str, life: int, draft: Draft) -> None:
        """Take a draft frame an application got: the host's tokens, gap-free per run."""
        streamed = self._drafts.get((draft.request, draft.run), ())
        end = draft.token_offset + len(draft.token_ids)
        if streamed[draft.token_offset : end] != draft.token_ids:
            raise Violation(f"{name} read a draft nobody streamed")
        reader = (name, life, draft.request, draft.run)
        if draft.token_offset not in (0, self._read.get(reader, 0)):
            raise Violation(f"{name} read a draft with a gap")
        self._read[reader] = end

    # --- in the end -----------------------------------------------------------------

    def check_stores(self, stores: Mapping[str, Disk]) -> None:
        """Every store is append-only, holds an entry once, and nothing invented."""
        for name, disk in stores.items():
            ids = disk.ids()
            if len(ids) != len(disk.entries):
                raise Violation(f"{name} stored an entry twice")
            for entry in disk.entries:
                self._check_authored(name, entry)
            lost = self.accepted_by.get(name, set()) - ids
            if lost:
                raise Violation(f"{name} lost {[i.hex()[:6] for i in sorted(lost)]}")

    def check_conversation(
        self,
        conversation: ConversationId,
        stores: Mapping[str, Disk],
        holders: Mapping[str, tuple[PublicKey | None, Conversation]],
    ) -> None:
        """Compare all members (and the hub, key None) with each other and with the books."""
        on = {
            name: {e.id for e in disk.entries if e.conversation == conversation}
            for name, disk in stores.items()
        }
        # What only a stranger holds (its grant got lost, or it was revoked) can't come back.
        roles, kept = self._fold(conversation, on["hub"])
        members = [name for name, (key, _) in holders.items() if key in roles and key not in kept]
        union = on["hub"].union(*(on[name] for name in members))
        covered = self._covered(union, kept)
        visible = {i for i in covered if self._is_visible(i, roles, kept)}
        views = {}
        for name, (key, held) in sorted(holders.items()):
            if key is not None and (key not in roles or key in kept):
                continue
            if held.log.entries.keys() != on[name]:
                raise Violation(f"{name}: memory and disk differ")
            if not covered <= on[name]:
                raise Violation(f"{name} lacks {[i.hex()[:6] for i in sorted(covered - on[name])]}")
            views[name] = view_of(held)
            if views[name].covered != covered:
                raise Violation(f"{name} covers another set than the books")
            if views[name].visible != visible:
                raise Violation(f"{name} sees another set than the books")
        first = min(views)
        for name, view in views.items():
            if view != views[first]:
                raise Violation(f"{first} and {name} differ in {differences(view, views[first])}")
        self._check_answers(views[first])
        self._check_again(next(iter(holders.values()))[1], views[first])

    def _check_answers(self, view: View) -> None:
        answered: dict[EntryId, EntryId] = {}
        for request, generation in view.answers:
            if generation is None:
                continue
            if answered.setdefault(request, generation) != generation:
                raise Violation("two generations count for one request")
            seal = self.books[self.books[generation].entry.header.parents[0]].body
            assert isinstance(seal, Seal)
            if seal.request != request:
                raise Violation("a generation counts for a request it does not answer")
        if not self._may_repeat:
            for seal_id, context in view.contexts:
                if self._contexts.setdefault(seal_id, context) != context:
                    raise Violation(f"the context of {seal_id.hex()[:6]} changed")

    def _check_again(self, held: Conversation, view: View) -> None:
        """Fold the covered entries once more in another order of arrival: same verdicts."""
        again = Conversation(held.id)
        for entry_id in sorted(view.covered):
            again.admit(held.log.entries[entry_id], verified=True)
        if again.log.pending:
            raise Violation("what is covered does not stand on its own")
        twin = view_of(again)
        if twin != view:
            raise Violation(f"arrival order matters: {differences(twin, view)}")

    def check_acked(self, stores: Mapping[str, Disk]) -> None:
        """What was acked is in some store, unless every store that had it lost it."""
        union = set().union(*(disk.ids() for disk in stores.values()))
        gone = [i for i in self._acked if i not in union]
        lossy = stores["hub"].losses and sum(disk.losses for disk in stores.values()) > 1
        if gone and not lossy:
            raise Violation(f"acked and lost: {[i.hex()[:6] for i in gone]}")

    # --- the books' own fold ------------------------------------------------------------

    def _fold(
        self, conversation: ConversationId, union: set[EntryId]
    ) -> tuple[dict[PublicKey, set[Role]], dict[PublicKey, set[EntryId]]]:
        """Roles, and what is kept of revoked keys; only genesis owners revoke here."""
        genesis = self.books[EntryId(conversation)].body
        assert isinstance(genesis, Genesis)
        changes = [
            (self.books[i].entry, self.books[i].body)
            for i in union
            if self.books[i].entry.header.kind == Kind.MEMBER
        ]
        kept: dict[PublicKey, set[EntryId]] = {}
        for entry, body in changes:
            assert isinstance(body, Member)
            if isinstance(body.change, Revocation) and entry.header.author in genesis.owners:
                inside = self._inside(body.change)
                kept[body.change.key] = kept.get(body.change.key, inside) & inside
        roles: dict[PublicKey, set[Role]] = {owner: {Role.OWNER} for owner in genesis.owners}
        for _ in changes:  # as often as grants can build on grants
            for entry, body in changes:
                assert isinstance(body, Member)
                author = entry.header.author
                counts = Role.OWNER in roles.get(author, ()) and (
                    author not in kept or entry.id in kept[author]
                )
                if counts and isinstance(body.change, Grant):
                    roles.setdefault(body.change.key, set()).add(Role(body.change.role))
        return roles, kept

    def _inside(self, revocation: Revocation) -> set[EntryId]:
        inside: set[EntryId] = set()
        for cut in revocation.cuts:
            at: EntryId | None = cut.id
            while at is not None:
                inside.add(at)
                at = self.books[at].entry.header.prev
        return inside

    def _covered(self, union: set[EntryId], kept: dict[PublicKey, set[EntryId]]) -> set[EntryId]:
        todo = [i for i in union if i in kept.get(self.books[i].entry.header.author, union)]
        covered: set[EntryId] = set()
        while todo:
            entry_id = todo.pop()
            if entry_id not in covered:
                covered.add(entry_id)
                todo += self.books[entry_id].named
        return covered

    def _is_visible(
        self,
        entry_id: EntryId,
        roles: dict[PublicKey, set[Role]],
        kept: dict[PublicKey, set[EntryId]],
    ) -> bool:
        header = self.books[entry_id].entry.header
        allowed = roles.get(header.author, set()) & ROLES[header.kind]
        return bool(allowed) and entry_id in kept.get(header.author, {entry_id})
