"""`/undo` of a question: what becomes of its requests (DECISIONS D499)."""

from dataclasses import replace

from antiphon.cli.chat_session import ChatSession
from antiphon.cli.errors import UndoForbidden
from replica.conversation import place_instead_of
from replica.ids import EntryId
from replica.log import Body, Cancel, Conflict


async def take_back(chat: ChatSession, message: EntryId) -> str:
    """Cancel the user's requests of a message; return what becomes of it, as words.

    Raises UndoForbidden where another member's question waits, since what is written in its place
    would be answered after it; and what `ChatSession.check_sent` raises.
    """
    held, entries = chat.held, chat.held.log.entries
    order, me = held.order, chat.replica.public
    requests = [i for i in held.log.children(message) if order.request(i) is not None]
    unanswered = [i for i in requests if order.generation_of(i) is None]
    awaited = [i for i in unanswered if not order.closing_cancels(i)]
    others = [i for i in awaited if entries[i].header.author != me]
    if others and place_instead_of(held, message).conflict is Conflict.QUEUE:
        who = chat.names.of(entries[others[0]].header.author)
        raise UndoForbidden(f"the last question is one of {who}, and waits for its answer")
    own = [i for i in requests if entries[i].header.author == me]
    for request in own:
        if request in order.seal_of:
            if request in awaited:
                await chat.cancel(request)
        else:
            await _branch_off(chat, request, is_awaited=request in awaited)
    if others:
        return "it will still be answered, on its own branch"
    return "it stays in the log, on its own branch"


async def _branch_off(chat: ChatSession, request: EntryId, *, is_awaited: bool) -> None:
    """Cancel a request, and put its message on a branch of its own.

    A message that no request took is in the next context, as if it had come late. A forking
    request behind it keeps it from that, also one that is cancelled at once (ORD-10).
    """
    asked = chat.held.order.request(request)
    assert asked is not None, "the caller looked"
    heads = chat.held.log.membership_heads()
    forking = replace(asked, membership_heads=heads, key=None)
    cancel: tuple[Body, ...] = (Cancel(),) if is_awaited else ()
    chat.check_sent()
    await chat.replica.append_chain(
        chat.held.id,
        (*cancel, forking, Cancel()),
        parents=(request,),
        basis=chat.held.log.entries[request].header.basis,
        conflict=Conflict.FORK,
    )
