"""Which key a store belongs to: the one that opened it last (DECISIONS D580, D609)."""

import asyncio
from contextlib import suppress
from pathlib import Path

from replica.conversation import EntryStore
from replica.errors import StoreError
from replica.ids import PublicKey
from replica.io.files import typed_errors
from replica.io.store.readonly import open_read_only
from replica.io.store.small_rows import OWN_KEY
from replica.refusals import ValueDamaged


async def key_before(store: EntryStore) -> PublicKey | None:
    """Return the key that opened a store before; None where nothing says so. Raises StoreError."""
    with suppress(ValueDamaged):
        stated = await store.get_meta(OWN_KEY)
        return PublicKey(stated) if stated is not None else None
    return None


async def note_own_key(store: EntryStore, public: PublicKey) -> None:
    """Note whose store it is, where it does not say so yet.

    A store that can't be written now is used all the same, and asked again when it is opened next.
    """
    with suppress(StoreError):
        if await store.get_meta(OWN_KEY) != public:
            await store.put_meta(OWN_KEY, public)


async def own_key_of(path: Path) -> PublicKey | None:
    """Return the key that opened a store last; None where nothing that can be read says so."""
    with suppress(StoreError), typed_errors():
        if await asyncio.to_thread(path.is_file):
            async with open_read_only(path) as store:
                return await key_before(store)
    return None
