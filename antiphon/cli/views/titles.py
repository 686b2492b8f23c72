"""The title of a conversation in tables and reports."""

from antiphon.cli.views.names import KEY_DIGITS
from antiphon.cli.views.output import harmless
from antiphon.cli.views.rows import cut, entries_at, words_of
from antiphon.cli.views.undone import is_undone
from replica.conversation import Conversation, newest_place
from replica.io import documents
from replica.log import Message, Speaker

TITLE_CELLS = 48


def one_line(text: str, cells: int) -> str:
    """Return a text of a member as one line of at most `cells` cells."""
    return cut(harmless(" ".join(text.split())), cells)


def title_of(held: Conversation) -> str:
    """Return the title in the shared document, else the first user message, as one line."""
    if held.log.genesis is None:
        return "(damaged: its beginning is missing)"
    title = documents.title_of(held)
    if title is not None:
        return one_line(title, TITLE_CELLS)
    standing = (e for e in entries_at(held, newest_place(held)) if not is_undone(held, e))
    for entry in standing:
        body = held.log.body(entry.id)
        if isinstance(body, Message) and body.speaker == Speaker.USER:
            return one_line(words_of(body.parts), TITLE_CELLS)
    owner = next(iter(held.log.membership.roles), b"")
    return f"(no message yet; owner {owner.hex()[:KEY_DIGITS]})"
