"""The log on disk: one SQLite file, its writer, its lock, its repair.

What else is kept in that file is here too, such as acks, tombstones and the hub's records.
"""

from replica.io.store.folder_use import HUB_FILE, FolderTaken, FolderUse, take_folder, use_of
from replica.io.store.own_key import key_before, note_own_key, own_key_of
from replica.io.store.readonly import open_read_only
from replica.io.store.salvage import StoreRepair, repair_store
from replica.io.store.small_rows import ENDING, HUB_KEY
from replica.io.store.store import Store
from replica.io.store.store_lock import require_free
from replica.io.store.tail import require_content
from replica.io.store.unfetched import Unfetched, note_fetched, times_of, unfetched_of

__all__ = [
    "ENDING",
    "HUB_FILE",
    "HUB_KEY",
    "FolderTaken",
    "FolderUse",
    "Store",
    "StoreRepair",
    "Unfetched",
    "key_before",
    "note_fetched",
    "note_own_key",
    "open_read_only",
    "own_key_of",
    "repair_store",
    "require_content",
    "require_free",
    "take_folder",
    "times_of",
    "unfetched_of",
    "use_of",
]
