"""Claims about hosts: the order of requests, the lists of seals, one answer per request."""

from replica.commits import Conversations
from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, EntryId
from replica.log.body import Request, Seal
from replica.log.entry import Conflict, Entry
from replica.log.kinds import Kind
from tests.simulation.mix import Mix
from tests.simulation.oracle.history import History, Violation

DECISIONS_MAX = 200
"""Most decisions of one host in one step; more means that the schedule repeats them."""


class Hosts:
    """The runs of each host, and the entries it wrote."""

    def __init__(self, history: History, mix: Mix) -> None:
        self._books = history
        self._may_repeat = mix.may_repeat
        self._answers: dict[EntryId, EntryId] = {}
        self._running: dict[str, dict[EntryId, EntryId]] = {}
        self._synced: set[tuple[str, ConversationId]] = set()

    def started(self, name: str) -> None:
        """Record a start: no conversation is synchronized, and there are no runs."""
        self._running[name] = {}
        self._synced = {known for known in self._synced if known[0] != name}

    def undone(self, name: str, lost: Conversations) -> None:
        """Record a refused commit: lost conversations are synced again, and their runs end."""
        self._running[name] = {}
        self._synced -= {(name, conversation) for conversation in lost}

    def synchronized(self, name: str, conversation: ConversationId) -> None:
        """Record a conversation as synchronized in this incarnation."""
        self._synced.add((name, conversation))

    def decided(self, name: str, count: int) -> None:
        """Count the decisions of one step."""
        if count > DECISIONS_MAX:
            raise Violation(f"{name} repeats its decisions without end")

    def sealed(self, name: str, entry: Entry, held: Conversation) -> None:
        """Check a new seal of an honest host: it must be valid."""
        if (name, held.id) not in self._synced:
            raise Violation(f"{name} sealed before it had synced its own lanes (ORD-12)")
        if entry.id not in held.order.nodes and not self._may_repeat:
            reason = held.order.void.get(entry.id)
            raise Violation(f"{name}'s own seal {entry.id.hex()[:6]} is void: {reason}")
        seal = self._books[entry.id].body
        assert isinstance(seal, Seal)
        request = self._books[seal.request].entry
        if request.header.conflict == Conflict.QUEUE and seal.prev_seal is not None:
            first = self._books[seal.entries[0]].entry.header
            answered = first.kind == Kind.GENERATION and first.parents == (seal.prev_seal,)
            if not answered and not self._follows_cancel(request, seal.prev_seal):
                raise Violation(f"{name} sealed a queued request without the answer before it")

    def _follows_cancel(self, request: Entry, seal_id: EntryId) -> bool:
        """Say whether a request follows a CANCEL of the seal's request."""
        seal = self._books[seal_id].body
        assert isinstance(seal, Seal)
        todo, seen = [request.id], set()
        while todo:
            at = todo.pop()
            header = self._books[at].entry.header
            if header.kind == Kind.CANCEL and header.parents == (seal.request,):
                return True
            todo += [p for p in header.parents if p not in seen]
            seen.update(header.parents)
        return False

    def began(self, name: str, request: EntryId, seal_id: EntryId) -> None:
        """Check the start of a run: one per request, and one per branch (spec/03-order §4)."""
        running = self._running[name]
        body = self._books[request].body
        if not isinstance(body, Request):
            raise Violation(f"{name} answers an entry that is no request")
        if request in running:
            raise Violation(f"{name} began a second run of {request.hex()[:6]}")
        busy = set(running.values())
        at: EntryId | None = seal_id
        while at is not None:
            if at in busy:
                raise Violation(f"{name} began a run on a branch that is busy")
            seal = self._books[at].body
            assert isinstance(seal, Seal)
            at = seal.prev_seal
        running[request] = seal_id

    def ended(self, name: str, request: EntryId) -> None:
        """Record the end of a run."""
        self._running[name].pop(request, None)

    def durable(self, name: str, entry: Entry) -> None:
        """Check an entry stored by its own host: one answer per request."""
        record = self._books.records.get(entry.id)
        if record is None or record.writer != name or self._may_repeat:
            return
        if entry.header.kind == Kind.GENERATION:
            first = entry.header.parents[0]
            answered = self._books[first].body
            # A refusal follows the request itself.
            request = answered.request if isinstance(answered, Seal) else first
            if self._answers.setdefault(request, entry.id) != entry.id:
                raise Violation(f"{name} answered a request twice")
