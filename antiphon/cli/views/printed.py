"""The entries that were printed, and messages among them that were taken back since. Pure."""

from antiphon.cli.views.names import Names
from antiphon.cli.views.rows import PREVIEW_CELLS, cut, row_of
from replica.conversation import Conversation
from replica.ids import EntryId
from replica.log import Entry, Kind
from replica.order import first_closing, is_withdrawn


class Printed:
    """The entries of a conversation that its reader was shown."""

    def __init__(self, held: Conversation) -> None:
        """Start empty."""
        self._held = held
        self._ids: set[EntryId] = set()
        self._unread: set[EntryId] = set()
        """The messages that no seal listed when they were looked at last."""

    def __contains__(self, entry_id: EntryId) -> bool:
        """Say whether an entry was printed."""
        return entry_id in self._ids

    def add(self, entry_id: EntryId) -> None:
        """Note that an entry was printed."""
        self._ids.add(entry_id)
        if self._held.log.entries[entry_id].header.kind == Kind.MESSAGE:
            self._unread.add(entry_id)

    def announce(self, message: EntryId) -> None:
        """Note that a message that waits was shown beside what was printed."""
        self._unread.add(message)

    def withdrawn(self) -> list[Entry]:
        """Return the messages that were withdrawn since they were shown, each once, in order."""
        order, entries = self._held.order, self._held.log.entries
        found = [i for i in self._unread if is_withdrawn(order, i)]
        self._unread -= {*found, *(i for i in self._unread if i in order.listed_by)}
        return sorted((entries[i] for i in found), key=lambda entry: entry.order_key)


def taken_back_words(held: Conversation, message: Entry, names: Names) -> str:
    """Return that a message was taken back, and by whom, as words."""
    words = " ".join(row_of(held, message).text.split())
    cancel = first_closing(held.order, message.id)
    who = names.of(held.log.entries[cancel].header.author) if cancel is not None else "somebody"
    return f"{who} took back: {cut(words, PREVIEW_CELLS)}"
