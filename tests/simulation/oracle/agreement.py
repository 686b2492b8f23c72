"""Claims about the end of a run: all readers agree with each other and with the history."""

from collections.abc import Mapping
from dataclasses import dataclass

from antiphon.conformance.naive_members import naive_covered, naive_membership
from antiphon.conformance.naive_order import naive_order
from antiphon.conformance.naive_tail import naive_frontier, naive_tail
from replica.conversation.conversation import Conversation
from replica.conversation.place import newest_place
from replica.ids import ConversationId, EntryId, PublicKey, Track
from replica.log.body import Seal
from replica.log.kinds import Kind
from replica.order.tail import tail
from tests.simulation.disk import Disk
from tests.simulation.mix import Mix
from tests.simulation.oracle.history import History, RecordedLog, Violation, short
from tests.simulation.oracle.kept import check_kept


@dataclass(frozen=True, slots=True)
class View:
    """The verdicts on one conversation that replicas must agree on."""

    covered: frozenset[EntryId]
    visible: frozenset[EntryId]
    contexts: tuple[tuple[EntryId, tuple[EntryId, ...]], ...]
    answers: tuple[tuple[EntryId, EntryId | None], ...]
    tips: tuple[EntryId, ...]
    tails: tuple[tuple[EntryId, ...], ...]
    place: tuple[EntryId | None, tuple[EntryId, ...]]


def view_of(held: Conversation) -> View:
    """Return the core's verdicts."""
    log, order = held.log, held.order
    covered = frozenset(log.covered())
    seals = sorted(order.nodes)
    tips = order.tips()
    place = newest_place(held)
    return View(
        covered,
        frozenset(i for i in covered if log.membership.is_visible(log.entries[i])),
        tuple((s, tuple(e.id for e in order.context(s))) for s in seals),
        tuple(sorted((order.nodes[s].seal.request, order.nodes[s].generation) for s in seals)),
        tuple(t.id for t in tips),
        tuple(tuple(e.id for e in tail(order, t)) for t in (None, *tips)),
        (place.basis, place.parents),
    )


def naive_view(log: RecordedLog) -> View:
    """Derive the same from the history, naively (spec/03-order §2, §3, §5)."""
    covered = frozenset(naive_covered(log))
    state = naive_membership(log)
    order = naive_order(log)
    bodies = {s: log.body(s) for s in sorted(order.chains)}
    answers = {s: order.answers.get(body.request) for s, body in bodies.items()}
    inner = {body.prev_seal for body in bodies.values()}

    def latest(seal: EntryId) -> tuple[int, EntryId]:
        entry = log.entries[answers[seal] or seal]
        return entry.header.lamport, entry.id

    tips = sorted((s for s in bodies if s not in inner), key=latest)
    newest = tips[-1] if tips else None
    return View(
        covered,
        frozenset(i for i in covered if state.sees(log.entries[i])),
        tuple((s, _context(log, order.chains[s])) for s in bodies),
        tuple(sorted((body.request, answers[s]) for s, body in bodies.items())),
        tuple(tips),
        tuple(naive_tail(log, order, state, tip) for tip in (None, *tips)),
        (newest, naive_frontier(log, order, state, newest)),
    )


def _context(log: RecordedLog, chain: list[EntryId]) -> tuple[EntryId, ...]:
    return tuple(listed for seal in chain for listed in log.body(seal).entries)


def differences(a: View, b: View) -> str:
    """Return the names of the fields in which two views differ."""
    names = [n for n in View.__slots__ if getattr(a, n) != getattr(b, n)]
    lacks = {n: short(getattr(a, n) ^ getattr(b, n)) for n in names if n in ("covered", "visible")}
    return f"{names} {lacks}"


class Agreement:
    """Compares all readers of one conversation with each other and with the history."""

    def __init__(self, history: History, mix: Mix) -> None:
        self._books = history
        self._may_repeat = mix.may_repeat
        self._contexts: dict[EntryId, tuple[EntryId, ...]] = {}

    def accepted(self, name: str, seal_id: EntryId, held: Conversation | None) -> None:
        """Check that every replica derives the same context for a seal."""
        if held is not None and seal_id in held.order.nodes:
            context = tuple(e.id for e in held.order.context(seal_id))
            if self._contexts.setdefault(seal_id, context) != context:
                raise Violation(f"{name} shows another context for {seal_id.hex()[:6]}")

    def check(
        self,
        conversation: ConversationId,
        stores: Mapping[str, Disk],
        holders: Mapping[str, tuple[PublicKey | None, Conversation]],
    ) -> None:
        """Compare all members, and the hub (key None), at the end."""
        on = {
            name: {e.id for e in disk.entries if e.conversation == conversation}
            for name, disk in stores.items()
        }
        # Entries held only by a non-member (grant lost, or revoked) can't be recovered.
        state = naive_membership(self._books.log_of(conversation, on["hub"]))
        members = {key for key, roles in state.roles.items() if roles} - state.kept.keys()
        readers = {
            name: held
            for name, (key, held) in sorted(holders.items())
            if key is None or key in members
        }
        union = on["hub"].union(*(on[name] for name in readers))
        whole = self._books.log_of(conversation, union)
        expected = naive_view(whole)
        tails = expected.tails[1:] or expected.tails  # that of the genesis, only before any seal
        check_kept(whole, naive_order(whole), naive_membership(whole), expected.visible, tails)
        for name, held in readers.items():
            if held.log.entries.keys() != on[name]:
                raise Violation(f"{name}: memory and disk differ")
            lacking = expected.covered - on[name]
            if lacking:
                raise Violation(f"{name} lacks {short(lacking)}")
            view = view_of(held)
            if view != expected:
                raise Violation(f"{name} differs from the history: {differences(view, expected)}")
        digests = {held.log.digest for held in readers.values()}
        if len(digests) > 1:
            raise Violation("equal logs have different digests")
        self._check_answers(expected)
        self._check_again(next(iter(readers.values())), expected)
        self._check_documents(readers, expected)

    def _check_answers(self, view: View) -> None:
        answered: dict[EntryId, EntryId] = {}
        for request, generation in view.answers:
            if generation is None:
                continue
            if answered.setdefault(request, generation) != generation:
                raise Violation("two generations count for one request")
            seal = self._books[self._books[generation].entry.header.parents[0]].body
            assert isinstance(seal, Seal)
            if seal.request != request:
                raise Violation("a generation counts for a request it does not answer")
        if not self._may_repeat:
            for seal_id, context in view.contexts:
                if self._contexts.setdefault(seal_id, context) != context:
                    raise Violation(f"the context of {seal_id.hex()[:6]} changed")

    def _check_again(self, held: Conversation, expected: View) -> None:
        """Check that covered entries in another order of arrival give the same verdicts."""
        again = Conversation(held.id)
        for entry_id in sorted(expected.covered):
            again.admit(held.log.entries[entry_id], verified=True)
        if again.log.pending:
            raise Violation("the covered entries are not complete")
        twin = view_of(again)
        if twin != expected:
            raise Violation(f"arrival order matters: {differences(twin, expected)}")
        if again.log.digest != held.log.digest:
            raise Violation("arrival order matters to the digest")

    def _check_documents(self, readers: Mapping[str, Conversation], expected: View) -> None:
        ids = expected.covered
        if not any(self._books[i].entry.header.kind == Kind.DOCUMENT for i in ids):
            return
        says = self._meta(expected)
        for name, held in readers.items():
            if dict(held.document.projection.meta) != says:
                raise Violation(f"{name} shows another document than the history")

    def _meta(self, expected: View) -> dict[str, object]:
        from tests.simulation.oracle.naive_meta import naive_meta  # imports pycrdt

        on_track = (
            self._books[i]
            for i in expected.covered
            if self._books[i].entry.header.track in (Track.ALL, Track.DOCUMENT)
        )
        return naive_meta(on_track, expected.visible)
