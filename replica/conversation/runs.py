"""The next step of a run: a message, a request, tools, and the next request (spec/02-entry §7).

Pure. A run has no state but the log, so that it goes on after a crash where it was.

    Say ─► Ask ─► Await ─► Perform ─► Ask ─► Await … ─► Done
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from replica.conversation.conversation import Conversation
from replica.conversation.keys import KeyedRun
from replica.conversation.obligations import Asked, Ledger
from replica.conversation.place import (
    Place,
    basis_of,
    goes_behind,
    place_beside,
    with_conflict,
)
from replica.ids import EntryId, PublicKey, tagged_sha256
from replica.log import (
    CONTINUABLE,
    Conflict,
    Entry,
    Generation,
    Kind,
    Message,
    Part,
    Text,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Tools,
    ToolStarted,
    reach,
)
from replica.order import ends, is_withdrawn

EFFECT_TAG = b"antiphon/v1/effect"
_NOT_CALLED = "Not called: the run has made as many calls as it may make."
_LEDGER = (ToolCall, ToolResult)
_TURN_KINDS = frozenset({Kind.REQUEST, Kind.SEAL, Kind.GENERATION})


@dataclass(frozen=True, slots=True)
class Say:
    """Append the message of the call, and its first request."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Append the next request at a place."""

    place: Place


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for the answer of a request."""

    request: EntryId


@dataclass(frozen=True, slots=True)
class AskAnew:
    """Cancel a request that waits behind an abandoned call, and append it again at a place."""

    request: EntryId
    place: Place


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call without a result, and the key of its effect if it was started."""

    opened_by: EntryId
    call: ToolCall
    asked: Asked
    request: EntryId
    """The request whose answer the call follows."""
    started: str | None = None

    @property
    def effect_key(self) -> str:
        """The key by which a tool can be asked whether the effect happened."""
        pre_image = self.opened_by + self.call.call_id.encode()
        return tagged_sha256(EFFECT_TAG, pre_image)[:16].hex()


@dataclass(frozen=True, slots=True)
class Perform:
    """Run the tools of open calls, and append their results."""

    request: EntryId
    calls: tuple[OpenCall, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The last request has an answer without open calls."""

    request: EntryId
    generation_id: EntryId
    generation: Generation


Step = Say | Ask | Await | AskAnew | Perform | Done


def next_step(held: Conversation, run: KeyedRun) -> Step:
    """Return the next step of a run."""
    if not run.requests:
        if run.message is None:
            return Say()
        basis = basis_of(held, held.log.entries[run.message])
        return Ask(Place((run.message,), basis))
    request = run.requests[-1]
    generation_id = held.order.generation_of(request)
    generation = held.order.answer(request)
    if generation_id is None or generation is None:
        place = _place_past_abandoned(held, request)
        return Await(request) if place is None else AskAnew(request, place)
    calls, was_called = calls_behind(held, request)
    if calls:
        return Perform(request, calls)
    if was_called:
        return Ask(result_place(held, request))
    return Done(request, generation_id, generation)


def calls_behind(
    held: Conversation, request: EntryId, is_read: Callable[[EntryId], bool] | None = None
) -> tuple[tuple[OpenCall, ...], bool]:
    """Return the open calls of a request's answer, and whether there are calls at all.

    The calls of the answer count, and those that its executor wrote behind it; with `is_read`
    only the messages for which it is true. For "was it started?" void entries count too.
    """
    asked, started = _asked(held, request), _starts(held, request)
    ledger, opened = Ledger(), dict[str, tuple[EntryId, ToolCall]]()
    for entry, ledger, _ in _ledgers(held, request, is_read):
        body = held.log.body(entry.id)
        assert isinstance(body, (Generation, Message, type(None))), "of these two kinds"
        for call in _calls_of(body):
            if call.call_id in ledger.calls:
                opened.setdefault(call.call_id, (entry.id, call))
    open_calls = tuple(
        OpenCall(*opened[call_id], asked, request, started.get(call_id))
        for call_id in ledger.open_calls
    )
    return open_calls, bool(ledger.calls)


def uncounted_results(held: Conversation, request: EntryId) -> frozenset[tuple[EntryId, int]]:
    """Return the results behind a request's answer that close no call, although they name one.

    Each is named by its entry and the index of its part.
    """
    found = _ledgers(held, request)
    return frozenset((entry.id, index) for entry, _, foreign in found for index in foreign)


def may_close(held: Conversation, call: OpenCall, author: PublicKey, *, is_error: bool) -> bool:
    """Say whether a result of `author`, which `Author` lets a member alone write, closes a call."""
    return call.asked.may_close(author, held.log.membership.owner_keys(), is_error=is_error)


def is_last_open(held: Conversation, call: OpenCall) -> bool:
    """Say whether no other call behind the same answer is open."""
    open_calls, _ = calls_behind(held, call.request)
    return [one.call.call_id for one in open_calls] == [call.call.call_id]


def is_still_open(held: Conversation, call: OpenCall) -> bool:
    """Say whether a call has no result yet: somebody else may have closed it meanwhile."""
    open_calls, _ = calls_behind(held, call.request)
    return any(one.call.call_id == call.call.call_id for one in open_calls)


def calls_ahead(held: Conversation, place: Place) -> tuple[OpenCall, ...]:
    """Return the open calls in the context of a request at a place, those of the last answer.

    A QUEUE request waits for their results; one that forks never gets them.
    """
    end = goes_behind(held, place)
    if end is None or end.generation is None or not calls_behind(held, end.seal.request)[1]:
        return ()
    entries, listed_by = held.log.entries, held.order.listed_by
    reached = reach(place.parents, lambda i: entries[i].header.parents, end.covers)
    if place.conflict is Conflict.FORK and end.generation not in reached:
        return ()

    def is_read(entry_id: EntryId) -> bool:
        if place.conflict is Conflict.FORK or entry_id in reached:
            return entry_id in reached
        node = listed_by.get(entry_id)
        return node is None or end.extends(node)  # another branch keeps what its seals list

    return calls_behind(held, end.seal.request, is_read)[0]


def queued_place(held: Conversation, request: EntryId) -> Place | None:
    """Return the place of a request in the log that waits for its turn, None if it does not."""
    entry = held.log.entries[request]
    if request in held.order.seal_of or entry.header.conflict != Conflict.QUEUE:
        return None
    return Place(entry.header.parents, basis_of(held, entry), Conflict.QUEUE)


def not_called(call: OpenCall) -> ToolResult:
    """Return the result of a call beyond those that its run may make."""
    return ToolResult(call.call.call_id, (Text(_NOT_CALLED),), is_error=True)


def calls_made(held: Conversation, run: KeyedRun) -> int:
    """Return how many calls of a run have results, without those that were not called."""
    answered = (r for r in run.requests if held.order.generation_of(r) is not None)
    return sum(not _is_not_called(one) for request in answered for one in _results(held, request))


def has_not_called(held: Conversation, request: EntryId) -> bool:
    """Say whether a call of an answer was one too many for its run."""
    return any(map(_is_not_called, _results(held, request)))


def has_started(held: Conversation, run: KeyedRun) -> bool:
    """Say whether a tool with an effect was started in a run; it is then not tried again."""
    answered = (r for r in run.requests if held.order.generation_of(r) is not None)
    return any(_starts(held, request) for request in answered)


def result_place(held: Conversation, request: EntryId) -> Place:
    """Return the place behind the results of a request's answer, for a result or a request."""
    parents = ends(held.log, _closing(held, request)) or (_answer_of(held, request),)
    return Place(parents, held.order.seal_of.get(request))


def entries_of(held: Conversation, run: KeyedRun) -> list[EntryId]:
    """Return the entries of a run in their order: its message, and each turn of it.

    A turn is a request, its seal, its answer, and the messages behind that up to the next turn,
    which anybody may have written.
    """
    found = [run.message] if run.message is not None else []
    for request in run.requests:
        answer = held.order.generation_of(request)
        ends = (held.order.seal_of.get(request), answer)
        found += [request, *(entry for entry in ends if entry is not None)]
        if answer is not None:
            found += [entry.id for entry in _messages_behind(held, answer)]
    return found


def retry_place(held: Conversation, request: EntryId) -> Place:
    """Return the place of another try of a request: where it was, beside its answer if it has one.

    A request that was refused before its seal is queued again, or forks again. One for the rest of
    an answer forks: queued, it would be refused again where another turn follows (HOST-128).
    """
    seal = held.order.seal_of.get(request)
    if seal is not None:
        return place_beside(held, seal)
    entry = held.log.entries[request]
    is_rest = continued_by(held, request) is not None
    conflict = Conflict.FORK if is_rest else Conflict(entry.header.conflict)
    return with_conflict(held, Place(entry.header.parents, basis_of(held, entry)), conflict)


def continued_by(held: Conversation, request: EntryId) -> EntryId | None:
    """Return the cut answer whose rest a request asks for, its only parent; None for others."""
    parents = held.log.entries[request].header.parents
    body = held.log.body(parents[0]) if len(parents) == 1 else None
    is_cut = isinstance(body, Generation) and body.finish_reason in CONTINUABLE
    return parents[0] if is_cut else None


def _place_past_abandoned(held: Conversation, request: EntryId) -> Place | None:
    """Return where a queued request is asked anew, None while it just waits.

    Its context never holds the result by which an owner or the requester abandons a call
    ahead of it, since it does not follow that. The executor is gone, and asks no more.
    """
    entries = held.log.entries
    entry, place = entries[request], queued_place(held, request)
    end = goes_behind(held, place) if place is not None else None
    if end is None or end.generation is None:
        return None
    ahead = end.seal.request
    executor = _asked(held, ahead).executor
    abandoning = [
        e for e in _closing(held, ahead) if e.header.author != executor and _is_error(held, e)
    ]
    if not abandoning:
        return None  # the rule, without a walk to the beginning of the conversation
    known = reach(entry.header.parents, lambda i: entries[i].header.parents)
    if known.issuperset(e.id for e in abandoning) or calls_behind(held, ahead)[0]:
        return None
    parents = ends(held.log, [*map(entries.__getitem__, entry.header.parents), *abandoning])
    return Place(parents, basis_of(held, entry))


def _closing(held: Conversation, request: EntryId) -> list[Entry]:
    """Return the visible messages with calls or results behind a request's answer."""
    return [
        entry
        for entry in _messages_behind(held, _answer_of(held, request))
        if held.log.membership.is_visible(entry)
        and any(isinstance(part, _LEDGER) for part in _parts_of(held, entry))
    ]


def _is_error(held: Conversation, entry: Entry) -> bool:
    return any(isinstance(p, ToolResult) and p.is_error for p in _parts_of(held, entry))


def offered_tools(held: Conversation, place: Place) -> tuple[ToolDefinition, ...]:
    """Return the tools offered last before a place."""
    entries = held.log.entries
    before = reach(place.parents, lambda i: entries[i].header.parents)
    found = [
        entries[i]
        for i in before
        if entries[i].header.kind == Kind.TOOLS and held.log.membership.is_visible(entries[i])
    ]
    last = max(found, key=lambda entry: entry.order_key, default=None)
    body = held.log.body(last.id) if last is not None else None
    return body.tools if isinstance(body, Tools) else ()


def _asked(held: Conversation, request: EntryId) -> Asked:
    body = held.order.request(request)
    assert body is not None, "requests are admitted with their bodies"
    return Asked.of(held.log.entries[request].header.author, body)


def _ledgers(
    held: Conversation, request: EntryId, is_read: Callable[[EntryId], bool] | None = None
) -> Iterator[tuple[Entry, Ledger, frozenset[int]]]:
    """Yield a request's answer and each message behind it, unless they are void or not read.

    With each come the ledger behind it, and the indices of its results that don't count.
    """
    asked, owners = _asked(held, request), held.log.membership.owner_keys()
    answer = held.log.entries[_answer_of(held, request)]
    ledger = Ledger(asked=asked)
    behind = _messages_behind(held, answer.id)
    read = behind if is_read is None else [entry for entry in behind if is_read(entry.id)]
    for entry in (answer, *read):
        if held.log.membership.is_visible(entry):
            author, body = entry.header.author, held.log.body(entry.id)
            ledger, foreign = ledger.after(author, body, answered=asked, owners=owners)
            yield entry, ledger, foreign


def _results(held: Conversation, request: EntryId) -> Iterator[ToolResult]:
    for entry, _, foreign in _ledgers(held, request):
        for index, part in enumerate(_parts_of(held, entry)):
            if isinstance(part, ToolResult) and index not in foreign:
                yield part


def _is_not_called(result: ToolResult) -> bool:
    return result.is_error and result.parts == (Text(_NOT_CALLED),)


def _starts(held: Conversation, request: EntryId) -> dict[str, str]:
    """Return the effect keys of the calls behind a request's answer that its executor started."""
    starts: dict[str, str] = {}
    executor = _asked(held, request).executor
    for message in _messages_behind(held, _answer_of(held, request)):
        for part in _parts_of(held, message):
            if isinstance(part, ToolStarted) and message.header.author == executor:
                starts.setdefault(part.call_id, part.effect_key)
    return starts


def _answer_of(held: Conversation, request: EntryId) -> EntryId:
    generation_id = held.order.generation_of(request)
    assert generation_id is not None, "the request has an answer"
    return generation_id


def _messages_behind(held: Conversation, answer: EntryId) -> list[Entry]:
    """Return the messages that follow an answer up to the next turns, in (lamport, id) order.

    Those that were withdrawn are left out.
    """
    log = held.log

    def is_turn(entry_id: EntryId) -> bool:
        return log.entries[entry_id].header.kind in _TURN_KINDS

    behind = reach(log.children(answer), log.children, is_turn)
    found = (e for e in map(log.entries.__getitem__, behind) if e.header.kind == Kind.MESSAGE)
    messages = (e for e in found if not is_withdrawn(held.order, e.id))
    return sorted(messages, key=lambda entry: entry.order_key)


def _parts_of(held: Conversation, entry: Entry) -> tuple[Part, ...]:
    body = held.log.body(entry.id)
    return body.parts if isinstance(body, Message) else ()


def _calls_of(body: Generation | Message | None) -> tuple[ToolCall, ...]:
    parts = body.parts if body is not None else ()
    return tuple(part for part in parts if isinstance(part, ToolCall))
