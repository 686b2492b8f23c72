"""The events that entries of the log stand for. Pure."""

from collections.abc import Container, Iterable, Iterator

from antiphon.library import events as e
from replica.conversation import (
    Asked,
    Conversation,
    Ledger,
    Place,
    goes_behind,
    uncounted_results,
    unlisted_before,
)
from replica.ids import EntryId, PublicKey
from replica.log import (
    AnswerRefused,
    Cancel,
    Entry,
    FinishReason,
    Generation,
    Grant,
    Kind,
    Member,
    Message,
    Part,
    Request,
    Role,
    Seal,
    Speaker,
    ToolCall,
    ToolResult,
    ToolStarted,
    reach,
    text_of,
)
from replica.order import first_closing, is_tail_entry, is_withdrawal, is_withdrawn


def answer_of(held: Conversation, request: EntryId) -> e.Answer | None:
    """Return the logged answer of a request, None while there is none."""
    generation_id, generation = held.order.generation_of(request), held.order.answer(request)
    if generation_id is None or generation is None:
        return None
    calls = tuple(call_of(part) for part in generation.parts if isinstance(part, ToolCall))
    finish = _finish_of(generation)
    text = text_of(generation.parts)
    return e.Answer(text, generation.usage, generation_id, request, finish, calls)


def _finish_of(generation: Generation) -> FinishReason:
    """Return why an answer ended, as far as the reason is known here."""
    reason = generation.finish_reason
    return FinishReason(reason) if reason in set(FinishReason) else FinishReason.UNSPECIFIED


def events_of(
    held: Conversation, entries: Iterable[Entry], me: PublicKey, read: Container[Entry] = ()
) -> Iterator[e.Event]:
    """Yield the events of admitted entries, in their order.

    `me` is the key whose branch is `mine` where the entries begin another one. Void entries have
    no events, but those in `read`: the context has them, though they are void by now.
    """
    for entry in entries:
        membership = held.log.membership
        if entry.header.kind == Kind.MEMBER:
            if membership.counts(entry):
                yield from _of_member(held, entry)
        elif membership.is_visible(entry) or entry in read:
            yield from _of_entry(held, entry, me)
        if held.log.lane_fork(entry.header.lane) is not None:
            yield e.Diverged(entry.header.author, entry.id, held.id)


def history_of(held: Conversation, place: Place, me: PublicKey) -> Iterator[e.Event]:
    """Yield what is said and answered before a place, in order."""
    log, node = held.log, goes_behind(held, place)
    context = held.order.context(node.id) if node is not None else []
    answer = node.generation if node is not None else None
    behind = unlisted_before(held, place)
    context += [entry for entry in behind if entry.id == answer]
    entries = dict.fromkeys([*context, *(e for e in behind if is_tail_entry(log, e))])
    for event in events_of(held, entries, me, set(context)):
        if isinstance(event, e.Said | e.ToolCalled | e.ToolDone | e.Answered):
            yield event


def _of_entry(held: Conversation, entry: Entry, me: PublicKey) -> Iterator[e.Event]:
    who, at, here = entry.header.author, entry.id, held.id
    match held.log.body(at):
        case Message(speaker, parts, label=label):
            words = text_of(tuple(p for p in parts if not isinstance(p, ToolResult)))
            if words:
                is_system = speaker == Speaker.SYSTEM
                yield e.Said(who, words, at, here, label=label, is_system=is_system)
            yield from _of_parts(held, entry, parts)
        case Request():
            yield e.Asked(who, at, here)
        case Seal(request=request) if at in held.order.nodes:
            yield e.Sealed(request, at, here)
            yield from _forks(held, at, me)
        case Generation():
            yield from _of_generation(held, entry)
        case Cancel() if is_withdrawal(held.log, entry):
            message = entry.header.parents[0]
            if first_closing(held.order, message) == at and is_withdrawn(held.order, message):
                yield e.Withdrawn(who, message, at, here)
        case _:
            pass


def _of_parts(held: Conversation, entry: Entry, parts: Iterable[Part]) -> Iterator[e.Event]:
    for index, part in enumerate(parts):
        match part:
            case ToolCall() if part.call_id in _opened(held, entry):
                yield e.ToolCalled(call_of(part), entry.id, held.id)
            case ToolStarted(call_id, effect_key):
                call = call_before(held, entry, call_id)
                yield e.ToolStarted(call, effect_key, entry.id, held.id)
            case ToolResult(call_id, inner, is_error) if _counts(held, entry, index):
                call = call_before(held, entry, call_id)
                yield e.ToolDone(call, text_of(inner), is_error, entry.id, held.id)
            case _:
                pass


def _counts(held: Conversation, entry: Entry, index: int) -> bool:
    """Say whether the model reads a result: one by a key that may not close its call is void."""
    entries = held.log.entries
    before = (entries[i] for i in _turn_before(held, entry))
    answers = (request_of(held, one) for one in before if one.header.kind == Kind.GENERATION)
    requests = [request for request in answers if request is not None]
    return all((entry.id, index) not in uncounted_results(held, one) for one in requests)


def _opened(held: Conversation, entry: Entry) -> Container[str]:
    """Return the ids of the calls that a message opens: none, unless its author executes calls."""
    entries, visible = held.log.entries, held.log.membership.is_visible

    def is_request(at: EntryId) -> bool:
        return entries[at].header.kind == Kind.REQUEST and visible(entries[at])

    def before(at: EntryId) -> tuple[EntryId, ...]:
        return () if is_request(at) else entries[at].header.parents

    last = max(
        map(entries.__getitem__, filter(is_request, reach(entry.header.parents, before))),
        key=lambda one: one.order_key,
        default=None,
    )
    request = held.order.request(last.id) if last is not None else None
    if last is None or request is None:
        return ()
    ledger = Ledger(asked=Asked.of(last.header.author, request))
    author, body = entry.header.author, held.log.body(entry.id)
    return ledger.after(author, body, answered=None, owners=frozenset())[0].calls


def _of_generation(held: Conversation, entry: Entry) -> Iterator[e.Event]:
    request = request_of(held, entry)
    if request is None:
        return
    answer, generation = answer_of(held, request), held.order.answer(request)
    assert answer is not None and generation is not None, "it answers the request"
    if answer.finish == FinishReason.REFUSED:
        refused = AnswerRefused.of(generation.finish_detail)
        yield e.Refused(refused.reason, refused.detail, request, held.id)
        return
    for call in answer.calls:
        yield e.ToolCalled(call, entry.id, held.id)
    yield e.Answered(answer, held.id)


def request_of(held: Conversation, entry: Entry) -> EntryId | None:
    """Return the request that a generation answers, None if it does not count."""
    if len(entry.header.parents) != 1:
        return None
    parent = entry.header.parents[0]
    node = held.order.nodes.get(parent)
    request = node.seal.request if node is not None else parent
    return request if held.order.generation_of(request) == entry.id else None


def _forks(held: Conversation, seal: EntryId, me: PublicKey) -> Iterator[e.Event]:
    node = held.order.nodes[seal]
    others = [one for one in held.order.children(node.parent) if one.id != seal]
    if not others:
        return

    def asked_by_me(request: EntryId) -> bool:
        return held.log.entries[request].header.author == me

    other = next((one for one in others if asked_by_me(one.seal.request)), others[0])
    if asked_by_me(node.seal.request):
        yield e.Forked(seal, other.id, held.id)
    else:
        yield e.Forked(other.id, seal, held.id)


def _of_member(held: Conversation, entry: Entry) -> Iterator[e.Event]:
    match held.log.body(entry.id):
        case Member(Grant(key, role)) if role in Role.__members__.values():
            yield e.MemberChanged(key, Role(role).name.lower(), held.id)
        case Member(Grant()) | None:
            pass
        case Member(change):
            yield e.MemberChanged(change.key, None, held.id)
        case _:
            pass


def call_before(held: Conversation, entry: Entry, call_id: str) -> e.Call:
    """Return the call of an id among an entry's ancestors; without a name if it is not there."""
    for at in _turn_before(held, entry):
        body = held.log.body(at)
        for part in body.parts if isinstance(body, (Message, Generation)) else ():
            if isinstance(part, ToolCall) and part.call_id == call_id and _opens(held, at, call_id):
                return call_of(part)
    return e.Call(call_id, "")


def _opens(held: Conversation, at: EntryId, call_id: str) -> bool:
    entry = held.log.entries[at]
    return entry.header.kind == Kind.GENERATION or call_id in _opened(held, entry)


def _turn_before(held: Conversation, entry: Entry) -> set[EntryId]:
    """Return an entry's ancestors behind the last request; the call of its result is there."""
    entries = held.log.entries

    def is_request(at: EntryId) -> bool:
        return entries[at].header.kind == Kind.REQUEST

    return reach(entry.header.parents, lambda i: entries[i].header.parents, is_request)


def call_of(part: ToolCall) -> e.Call:
    """Return the call of an answer or a message."""
    return e.Call(part.call_id, part.name, part.arguments_json)
