"""The next request a host acts on, and how (spec/03-order §4, spec/07-host §4).

Pure: no clock. The driver calls `Schedule.start_next`, acts on the decision, and calls
`end`, `wait` or `give_up`. The entries it appended are read from the log.

    start_next ─► Begin        seal the request, generate, append the answer
                  Resume       the request is sealed: continue its run, or close it
                  Refuse       append a generation with the reason for no answer
                  RefuseExcess the same, for one of many
                  GatherHeads  append a JOIN of membership heads, then call again
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from model_host.refusals import (
    CallRepeated,
    HostBusy,
    NothingToContinue,
    RequestExpired,
    finish_detail,
)
from model_host.scheduling.owner import owner_of
from replica.conversation import (
    Conversation,
    Sealable,
    continued_by,
    may_be_sealed,
    open_requests,
    repeats_call,
    sealable,
)
from replica.errors import HostError
from replica.ids import ConversationId, EntryId, PublicKey
from replica.log import FinishReason, Generation, Request
from replica.order import SealNode

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Begin:
    """Seal a request whose turn has come, and generate."""

    conversation: ConversationId
    ready: Sealable

    @property
    def request(self) -> EntryId:
        """The request to answer."""
        return self.ready.request


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue a request that is sealed and has no answer: its run was interrupted."""

    conversation: ConversationId
    request: EntryId


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse a request before it begins; it is not sealed."""

    conversation: ConversationId
    request: EntryId
    finish: FinishReason
    detail: str

    @property
    def body(self) -> Generation:
        """The generation to append; the request is its only parent (ORD-9)."""
        return Generation((), (), 0, self.finish, finish_detail=self.detail)


@dataclass(frozen=True, slots=True)
class RefuseExcess(Refuse):
    """Refuse one of an owner's requests beyond the bound; there may be thousands.

    It does not count as running, and holds up nobody.
    """


@dataclass(frozen=True, slots=True)
class GatherHeads:
    """Append a JOIN of surplus membership heads: one seal can't name them all (ORD-15)."""

    conversation: ConversationId
    request: EntryId
    heads: tuple[EntryId, ...]


Decision = Begin | Resume | Refuse | GatherHeads


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers of requests that a host acts on and lets wait."""

    running_max: int
    running_per_owner_max: int
    """Less than `running_max`, so that one owner can't keep all others waiting."""
    waiting_per_owner_max: int
    """The newest requests beyond it are refused (HOST-28)."""


GIVEN_UP_MAX = 1024
"""Requests remembered that could neither be answered nor refused."""
LAST_TURNS_MAX = 16_384
"""Owners and conversations whose last turn is remembered."""


@dataclass(frozen=True, slots=True)
class _Excess:
    """A request to refuse, since `count` of its owner wait."""

    held: Conversation
    request: EntryId
    owner: PublicKey
    count: int


@dataclass(frozen=True, slots=True)
class _Tried:
    """A request that waits for results: the size of the log it was tried on, and its time."""

    entries: int
    answer_by_ms: int


class Schedule:
    """The turns of a host, fair between owners, then between conversations of an owner.

    The owner with the fewest requests running comes first, then the one served longest
    ago; likewise the conversation, and of those never served the one with the least id.
    Within a conversation requests come in (lamport, id) order.
    """

    def __init__(self, host: PublicKey, bounds: Bounds) -> None:
        """Serve the requests that name `host`."""
        self._host = host
        self._bounds = bounds
        self._running: dict[EntryId, tuple[ConversationId, PublicKey]] = {}
        self._excess: list[_Excess] = []
        """Requests beyond the bound of an owner, the newest last: they are refused next."""
        self._refusing: set[EntryId] = set()
        """Those being refused. They neither run nor wait, and hold up nobody."""
        self._given_up: dict[EntryId, None] = {}
        self._tried_on: dict[EntryId, _Tried] = {}
        """Requests that wait for results of tools."""
        self._turns = 0
        self._last_turn: dict[ConversationId | PublicKey, int] = {}  # the longest ago first
        self._arrivals: dict[EntryId, int] = {}  # waiting requests, numbered as they were seen
        self._next_arrival = 0

    @property
    def running(self) -> int:
        """The number of decisions being acted on."""
        return len(self._running)

    def waiting(self, conversations: Iterable[Conversation]) -> int:
        """Count the requests to this host that have no answer and are not being acted on."""
        return sum(
            request not in self._running and request not in self._refusing
            for held in conversations
            if is_host_of(held, self._host)
            for request in open_requests(held, self._host)
        )

    def start_next(
        self,
        conversations: Iterable[Conversation],
        *,
        is_synchronized: Callable[[ConversationId], bool],
        now_ms: int,
    ) -> Decision | None:
        """Return the next decision, None while there is none.

        It counts as running until `end` or `give_up`. `now_ms` is the host's own clock, in
        Unix milliseconds (HOST-27).
        """
        if (refusal := self._refuse_excess(is_synchronized)) is not None:
            return refusal
        # ORD-12: seals of this key from an earlier process may be known to the hub alone.
        served = [
            (held, owner_of(held))
            for held in conversations
            if any(held.order.unanswered.naming(self._host))  # most have none
            and is_synchronized(held.id)
            and is_host_of(held, self._host)
        ]
        self._note_waiting(served)
        refusal = self._refuse_excess(is_synchronized)
        if refusal is not None or len(self._running) >= self._bounds.running_max:
            return refusal
        running = Counter(owner for _, owner in self._running.values())

        def turn(one: tuple[Conversation, PublicKey]) -> tuple[int, int, int, bytes]:
            held, owner = one
            last = self._last_turn
            return running[owner], last.get(owner, 0), last.get(held.id, 0), held.id

        for held, owner in sorted(served, key=turn):
            if running[owner] < self._bounds.running_per_owner_max:
                decision = self._decide(held, now_ms)
                if decision is not None:
                    return self._note(decision, owner)
        return None

    def _note_waiting(self, served: list[tuple[Conversation, PublicKey]]) -> None:
        """Note the requests that wait, and the newest beyond the bound of their owner.

        A cancelled one does not: it is refused as soon as the host has a turn free.
        """
        waiting: dict[PublicKey, list[tuple[Conversation, EntryId]]] = {}
        for held, owner in served:
            unbegun = (i for i in self._unbegun(held) if not held.order.is_cancelled(i))
            waiting.setdefault(owner, []).extend((held, one) for one in unbegun)
        now = [request for requests in waiting.values() for _, request in requests]
        waits = {*now}
        self._arrivals = {one: at for one, at in self._arrivals.items() if one in waits}
        self._tried_on = {one: at for one, at in self._tried_on.items() if one in waits}
        for request in now:
            self._arrivals.setdefault(request, self._next_arrival)
            self._next_arrival += 1
        limit = self._bounds.waiting_per_owner_max
        for owner, requests in waiting.items():
            if len(requests) > limit:
                requests.sort(key=lambda one: self._arrivals[one[1]])
                self._excess += [
                    _Excess(held, request, owner, count)
                    for count, (held, request) in enumerate(requests[limit:], limit + 1)
                ]

    def _refuse_excess(
        self, is_synchronized: Callable[[ConversationId], bool]
    ) -> RefuseExcess | None:
        """Refuse the newest request beyond a bound, None if there is none."""
        while self._excess:
            newest = self._excess.pop()
            held, request = newest.held, newest.request
            if not is_synchronized(held.id) or not self._is_unbegun(held, request):
                continue
            limit = self._bounds.waiting_per_owner_max
            busy = HostBusy(f"{newest.count} requests of this owner wait, {limit} at most.")
            self._refusing.add(request)
            self._note_turn(held.id, newest.owner)
            return RefuseExcess(held.id, request, FinishReason.REFUSED, finish_detail(busy))
        return None

    def _unbegun(self, held: Conversation) -> list[EntryId]:
        """Return the requests of a conversation that are neither sealed nor acted on."""
        return [one for one in open_requests(held, self._host) if self._is_unbegun(held, one)]

    def _is_unbegun(self, held: Conversation, request: EntryId) -> bool:
        acted_on = (self._running, self._refusing, self._given_up, held.order.seal_of)
        return request in held.order.unanswered and not any(request in one for one in acted_on)

    def end(self, request: EntryId) -> None:
        """End a decision; if it was not carried out, it comes again."""
        self._running.pop(request, None)
        self._refusing.discard(request)

    def wait(self, request: EntryId, entries: int, answer_by_ms: int = 0) -> None:
        """End a decision; its request waits for results of tools, with `entries` in the log.

        It comes again once the log has grown, or to be refused behind its `answer_by_ms`.
        """
        self.end(request)
        self._tried_on[request] = _Tried(entries, answer_by_ms)

    def next_expiry_ms(self, now_ms: int) -> int | None:
        """Return when the next request that waits for results is to be refused, None for never.

        Nothing else may happen until then, so the driver calls `start_next` at that time.
        """
        ends = (tried.answer_by_ms for tried in self._tried_on.values())
        return min((end + 1 for end in ends if end >= now_ms), default=None)

    def give_up(self, request: EntryId) -> None:
        """End a decision, and return its request no more.

        Of more than GIVEN_UP_MAX the first one is forgotten, and tried again.
        """
        self.end(request)
        self._given_up[request] = None
        _shorten(self._given_up, GIVEN_UP_MAX)

    def _note(self, decision: Decision, owner: PublicKey) -> Decision:
        self._running[decision.request] = (decision.conversation, owner)
        if not isinstance(decision, GatherHeads):  # not a turn, only a step before one
            self._note_turn(decision.conversation, owner)
        return decision

    def _note_turn(self, conversation: ConversationId, owner: PublicKey) -> None:
        self._turns += 1
        for served in (conversation, owner):
            self._last_turn.pop(served, None)
            self._last_turn[served] = self._turns
        # Who is forgotten comes first, as he did before: he was served the longest ago.
        _shorten(self._last_turn, LAST_TURNS_MAX)

    def _decide(self, held: Conversation, now_ms: int) -> Decision | None:
        """Return the first decision for one conversation, None if there is none."""
        here = [request for request, (where, _) in self._running.items() if where == held.id]
        seals = held.order.seal_of
        if any(request not in seals for request in here):
            return None  # the place of its seal decides the places of later ones
        runs = [held.order.nodes[seals[request]] for request in here]
        for request in open_requests(held, self._host):
            if request in self._given_up or request in self._refusing:
                continue
            tried = self._tried_on.get(request)
            waits = tried is not None and tried.entries == len(held.log)
            decision = _resume(held, request, runs) or _begin(held, request, runs, waits, now_ms)
            if decision is not None:
                self._tried_on.pop(request, None)
                return decision
        return None


def _shorten(kept: dict[Key, Any], count: int) -> None:
    """Remove the first entries of a dictionary beyond a count."""
    while len(kept) > count:
        del kept[next(iter(kept))]


def is_host_of(held: Conversation, key: PublicKey) -> bool:
    """Say whether `key` may answer in a conversation: a member with the role HOST."""
    return held.is_member(key) and held.log.membership.is_host(key)


def _resume(held: Conversation, request: EntryId, runs: list[SealNode]) -> Decision | None:
    """Decide about a sealed request; None for others and while its branch is busy."""
    seal = held.order.seal_of.get(request)
    # Requests behind its own seal come later in (lamport, id) order: they can't run yet.
    if seal is None or _is_busy(held.order.nodes[seal], runs):
        return None
    return Resume(held.id, request)


def _begin(
    held: Conversation, request: EntryId, runs: list[SealNode], waits: bool, now_ms: int
) -> Decision | None:
    """Decide about an unsealed request; None for others and until its turn comes.

    One that was cancelled does not wait for it.
    """
    if not may_be_sealed(held, request):
        return None
    if held.order.is_cancelled(request):
        detail = "cancelled before it began"
        return Refuse(held.id, request, FinishReason.CANCELLED, detail)
    ready = sealable(held, request)
    # A branch continues past a closed request, whose run may not have ended yet.
    if ready is None or _is_busy(ready.parent, runs):
        return None
    refusal = _refusal(held, ready, now_ms)
    if refusal is not None:
        return refusal
    if waits:
        return None
    heads = held.log.roster.heads_to_join()
    return GatherHeads(held.id, request, heads) if heads else Begin(held.id, ready)


def _refusal(held: Conversation, ready: Sealable, now_ms: int) -> Refuse | None:
    """Return the refusal of a request whose turn has come, None if it may begin."""
    request = held.order.request(ready.request)
    assert request is not None, "only requests are answered"
    error: HostError | None = None
    if repeats_call(held, ready.request):
        error = CallRepeated()
    elif _lost_its_answer(held, ready):
        error = NothingToContinue()
    else:
        error = expired(request, now_ms)
    if error is None:
        return None
    return Refuse(held.id, ready.request, FinishReason.REFUSED, finish_detail(error))


def _lost_its_answer(held: Conversation, ready: Sealable) -> bool:
    """Say whether a request for the rest of a cut answer comes behind another turn (HOST-128).

    Both of two members may ask for the rest at once.
    """
    answer = continued_by(held, ready.request)
    return answer is not None and ready.entries[-2:] != (answer, ready.request)


def expired(request: Request, now_ms: int) -> RequestExpired | None:
    """Return the refusal of a request whose time is over, None for any other.

    Ask before its context is rendered, and again right before it is sealed. HOST-27: the
    clock decides about this refusal alone, and the refusal is in the log.
    """
    if not 0 < request.answer_by_ms < now_ms:
        return None
    late_s = (now_ms - request.answer_by_ms) / 1000
    return RequestExpired(f"it could begin {late_s:.0f} s after the time set for it")


def _is_busy(node: SealNode | None, runs: list[SealNode]) -> bool:
    """Say whether a seal with a run is in the chain that ends with `node`."""
    return node is not None and any(node.extends(run) for run in runs)
