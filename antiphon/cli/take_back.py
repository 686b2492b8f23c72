"""`/undo` of a question: what becomes of its requests (DECISIONS D499)."""

from dataclasses import replace

from antiphon.cli.chat_session import ChatSession, Turn
from antiphon.cli.errors import UndoForbidden
from antiphon.cli.rows import entries_at
from replica.conversation import place_instead_of
from replica.ids import EntryId
from replica.io import turns
from replica.log import Body, Cancel, Conflict, Kind, Request, reach


async def take_back(chat: ChatSession, message: EntryId) -> str:
    """Cancel the user's requests of a message; return what becomes of it, as words.

    Raises UndoForbidden where another member's question waits, since what is written in its place
    would be answered after it; and what `ChatSession.check_sent` raises.
    """
    chat.check_sent()
    held, entries = chat.held, chat.held.log.entries
    order, me = held.order, chat.replica.public
    requests = await _requests_of(chat, message)
    unanswered = [i for i in requests if order.generation_of(i) is None]
    awaited = [i for i in unanswered if not order.closing_cancels(i)]
    others = [i for i in awaited if entries[i].header.author != me]
    if others and place_instead_of(held, message).conflict is Conflict.QUEUE:
        who = chat.names.of(entries[others[0]].header.author)
        raise UndoForbidden(f"the last question is one of {who}, and waits for its answer")
    own = [i for i in requests if entries[i].header.author == me]
    for request in own:
        asked = order.request(request)
        if asked is not None and request not in order.seal_of:
            await _set_apart(chat, request, asked, is_awaited=request in awaited)
        elif request in awaited:
            await chat.cancel(request)
    if others:
        return "it will still be answered, on its own branch"
    if not requests and message not in order.listed_by:
        if entries[message].header.author != me:
            return "nobody asked about it, so the context after the next answer has it"
        options = await chat.options(Turn(await chat.place()))
        await _set_apart(chat, message, turns.request_body(held, options), is_awaited=False)
    return "it stays in the log, on its own branch"


async def _requests_of(chat: ChatSession, message: EntryId) -> list[EntryId]:
    """Return the requests of a message, and those that its turn has behind results of tools."""
    log, order = chat.held.log, chat.held.order
    shown = {entry.id for entry in entries_at(chat.held, await chat.place())}

    def is_elsewhere(entry_id: EntryId) -> bool:
        return entry_id not in shown and log.entries[entry_id].header.kind != Kind.SEAL

    found = {*log.children(message), *reach([message], log.children, is_elsewhere)}
    requests = (i for i in found if order.request(i) is not None)
    return sorted(requests, key=lambda i: log.entries[i].order_key)


async def _set_apart(chat: ChatSession, last: EntryId, asked: Request, *, is_awaited: bool) -> None:
    """Put a message on a branch of its own: behind it, or its request `last`, which is cancelled.

    A message that no request took is in the next context, as if it had come late. A forking
    request behind it keeps it from that, also one that is cancelled at once (ORD-10).
    """
    heads = chat.held.log.membership_heads()
    forking = replace(asked, membership_heads=heads, key=None)
    cancel: tuple[Body, ...] = (Cancel(),) if is_awaited else ()
    await chat.replica.append_chain(
        chat.held.id,
        (*cancel, forking, Cancel()),
        parents=(last,),
        basis=chat.held.log.entries[last].header.basis,
        conflict=Conflict.FORK,
    )
