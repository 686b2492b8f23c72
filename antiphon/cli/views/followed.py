"""The entry that the next message is said to follow. Pure."""

from antiphon.cli.views.rows import PREVIEW_CELLS, Row, cut, entries_at, is_listed
from antiphon.cli.views.undone import is_undone
from replica.conversation import Conversation, Place
from replica.ids import EntryId
from replica.log import Conflict, Entry


def followed(held: Conversation, place: Place) -> Entry:
    """Return the newest entry that the next message follows.

    Where a branch ends with a question that was taken back, it is what was said before; it is one
    that lists show, if there is any. An entry that somebody chose is named whatever it is.
    """
    entries = held.log.entries
    parents = sorted((entries[i] for i in place.parents), key=lambda entry: entry.order_key)
    if place.conflict is Conflict.FORK:
        chosen = [entry for entry in entries_at(held, place) if entry in parents]
        return (chosen or parents)[-1]
    shown = [entry for entry in entries_at(held, place) if is_listed(held, entry)]
    standing = (e for e in reversed([*parents, *shown]) if not is_undone(held, e))
    return next(standing, entries[EntryId(held.id)])


def followed_next(row: Row) -> str:
    """Return which entry the next message follows, with its words, or else its note."""
    words = " ".join(row.text.split()) or f"({row.note.split(' · ')[0] or 'no words'})"
    return f"the next message follows {row.id}  {row.who}: {cut(words, PREVIEW_CELLS)}"
