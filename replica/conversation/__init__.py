"""One conversation as a whole: log, order and drafts, read and written (spec/01)."""

from replica.conversation.author import Author
from replica.conversation.backlog import awaited
from replica.conversation.conversation import Conversation
from replica.conversation.drafts import (
    Draft,
    DraftStream,
    Progress,
    extend_digest,
    sign_draft,
    start_digest,
    verify_draft,
)
from replica.conversation.entry_store import EntryStore, Loaded, Quarantined, Stored
from replica.conversation.epochs import Epochs
from replica.conversation.next_seal import Sealable, open_requests, sealable
from replica.conversation.place import Place, newest_place, place_at, place_on_branch
from replica.conversation.shelf import MemoryShelf, Shelf

__all__ = [
    "Author",
    "Conversation",
    "Draft",
    "DraftStream",
    "EntryStore",
    "Epochs",
    "Loaded",
    "MemoryShelf",
    "Place",
    "Progress",
    "Quarantined",
    "Sealable",
    "Shelf",
    "Stored",
    "awaited",
    "extend_digest",
    "newest_place",
    "open_requests",
    "place_at",
    "place_on_branch",
    "sealable",
    "sign_draft",
    "start_digest",
    "verify_draft",
]
