"""`/undo` of a question: what becomes of it and of its requests (DECISIONS D499, D573)."""

from antiphon.cli.chat.chat_session import ChatSession
from antiphon.cli.common import UndoForbidden
from antiphon.cli.views import entries_at, is_cancelled
from replica.conversation import is_about, requests_reading
from replica.errors import with_step
from replica.ids import EntryId
from replica.io import cancels
from replica.log import Kind, reach


async def take_back(chat: ChatSession, message: EntryId) -> str:
    """Take a message out of what comes; return what becomes of it, as words.

    A message that no answer has read is withdrawn, with the user's requests about it. Of any
    other the user's open requests are cancelled, and the next message comes beside it. Raises
    UndoForbidden, and what `ChatSession.check_sent` raises.
    """
    chat.check_sent()
    if message in chat.held.order.listed_by:
        return await _leave(chat, message)
    await _withdraw(chat, message)
    return "it stays in the log, and no answer reads it"


async def _withdraw(chat: ChatSession, message: EntryId) -> None:
    """Withdraw a message, with the user's requests about it.

    Raises UndoForbidden for one of another member, and for one that another question follows.
    """
    held, me, entries = chat.held, chat.replica.public, chat.held.log.entries
    author = entries[message].header.author
    if author != me:
        who = chat.names.of(author)
        error = UndoForbidden(f"the last message is one of {who}, and no answer has read it yet")
        if is_cancelled(held, entries[message]):
            with_step(error, "Let the next message follow an entry: `/fork`.")
        raise error
    for request in requests_reading(held, message):
        if not is_about(held, request, message, me):
            who = chat.names.of(entries[request].header.author)
            raise UndoForbidden(f"a question of {who} waits behind this one")
    await cancels.withdraw(chat.replica, held.id, message)


async def _leave(chat: ChatSession, message: EntryId) -> str:
    """Cancel the user's open requests of a message's turn; return what becomes of it."""
    order, me = chat.held.order, chat.replica.public
    requests = await _requests_of(chat, message)
    unanswered = [i for i in requests if order.generation_of(i) is None]
    awaited = [i for i in unanswered if not order.closing_cancels(i)]
    others = [i for i in awaited if chat.held.log.entries[i].header.author != me]
    for request in awaited:
        if request not in others:
            await chat.cancel(request)
    if others:
        return "it will still be answered, on its own branch"
    return "it stays in the log, on its own branch"


async def _requests_of(chat: ChatSession, message: EntryId) -> list[EntryId]:
    """Return the requests of a message, and those that its turn has behind results of tools."""
    log, order = chat.held.log, chat.held.order
    shown = {entry.id for entry in entries_at(chat.held, chat.place())}

    def is_elsewhere(entry_id: EntryId) -> bool:
        return entry_id not in shown and log.entries[entry_id].header.kind != Kind.SEAL

    found = {*log.children(message), *reach([message], log.children, is_elsewhere)}
    requests = (i for i in found if order.request(i) is not None)
    return sorted(requests, key=lambda i: log.entries[i].order_key)
