"""The titles that one key gave to conversations, by which it finds them (DECISIONS D245)."""

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from replica.conversation import Conversation
from replica.ids import EntryId, PublicKey
from replica.io import documents

if TYPE_CHECKING:
    from replica.document import Document


class OwnTitles:
    """What one key called conversations; read again only where a document has changed."""

    def __init__(self, key: PublicKey) -> None:
        """Know none."""
        self._key = key
        self._known = WeakKeyDictionary["Document", tuple[tuple[EntryId, ...], str | None]]()

    def of(self, held: Conversation) -> str | None:
        """Return the last title that the key gave a conversation, None without one."""
        if not documents.has_document(held):
            return None
        document = held.document
        heads, title = self._known.get(document, ((), None))
        if heads != document.heads:
            heads, title = document.heads, documents.title_set_by(held, self._key)
            self._known[document] = heads, title
        return title
