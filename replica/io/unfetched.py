"""The note that a repaired store may lack whole conversations (DECISIONS D538).

Of a conversation whose every page was damaged, nothing is left in the store to name it. The
note stays until a hub was asked for all that the replica's key may read.
"""

from replica.conversation import EntryStore

KEY = "repair unfetched"
_YES, _NO = b"1", b""


async def note_unfetched(store: EntryStore) -> None:
    """Note that a hub is to be asked. Raises StoreError."""
    await store.put_meta(KEY, _YES)


async def note_fetched(store: EntryStore) -> None:
    """Note that a hub was asked, and that all it has came. Raises StoreError."""
    await store.put_meta(KEY, _NO)


async def is_unfetched(store: EntryStore) -> bool:
    """Say whether a hub is to be asked yet. Raises ValueDamaged, StoreError."""
    return await store.get_meta(KEY) == _YES
