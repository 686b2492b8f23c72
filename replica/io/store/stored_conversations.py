"""The stored conversations of a store, with their sizes; their entries are not read."""

import contextlib

from replica.conversation import Stored
from replica.errors import ReplicaClosed, StoreError
from replica.ids import ID_BYTES, ConversationId
from replica.io.process import get_logger
from replica.io.store import statements as sql
from replica.io.store.connection import Read
from replica.io.store.repair import Repairs
from replica.io.store.rows import is_noted

_log = get_logger()


async def stored_conversations(read: Read, repairs: Repairs) -> list[Stored]:
    """List the stored conversations by id; those only in quarantine have 0 entries."""
    noted = await read(sql.IN_QUARANTINE)
    held = {keys[0]: (0, 0, 0) for keys in noted if is_noted(*keys)}
    rows = await read(sql.SIZES)
    if not all(found for *_, found in rows) and not repairs.has_rebuilt:
        with contextlib.suppress(StoreError):  # The writer logged it.
            await repairs.rebuild_index()
        rows = await read(sql.SIZES)
    held |= {c: (count, size or 0, sum_ or 0) for c, count, size, sum_, found in rows if found}
    # A damaged row may hold any value here; it is examined with its conversation.
    ids = (c for c in held if isinstance(c, bytes) and len(c) == ID_BYTES)
    sums = await _membership_sums(read)
    return [Stored(ConversationId(c), *held[c], sums.get(c)) for c in sorted(ids)]


async def _membership_sums(read: Read) -> dict[object, tuple[int, int]]:
    """Return number and sum of the membership entries, by conversation.

    None for conversations that lack entries; none at all where a row of the list has no entry:
    it may be of any conversation. Raises ReplicaClosed.
    """
    try:
        ((listed,),) = await read(sql.LISTED)
        rows = await read(sql.MEMBERSHIP_SUMS)
        lacking = {c for (c,) in await read(sql.LACKING)}
    except ReplicaClosed:
        raise
    except StoreError as error:
        _log.warning("membership entries not counted", reason=error.reason, detail=error.detail)
        return {}
    if listed != sum(count for _, count, _ in rows):
        return {}
    return {c: (count, sum_) for c, count, sum_ in rows if c not in lacking}
