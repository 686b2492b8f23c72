"""The keys that brought deleted conversations to a hub, in its store (DECISIONS D556).

A tombstone counts for the key that brought its conversation, also behind a restart. A row that
is lost or damaged lets that key bring one more; so nothing fails for it.
"""

from collections.abc import Mapping

from replica.errors import StoreError
from replica.ids import ID_BYTES, KEY_BYTES, ConversationId, PublicKey
from replica.io.process import get_logger
from replica.io.store import statements as sql
from replica.io.store.commit import GroupCommit
from replica.io.store.connection import Read
from replica.io.store.transaction import Statement

_log = get_logger()


class HubBringers:
    """The stored bringers of deleted conversations, in one store."""

    def __init__(self, commit: GroupCommit, read: Read) -> None:
        """Write through `commit` and read with `read`; their owner closes them."""
        self._commit = commit
        self._read = read

    async def put(self, bringers: Mapping[ConversationId, PublicKey]) -> None:
        """Store them, or log why the disk refused."""
        if not bringers:
            return
        rows = list(bringers.items())
        try:
            await self._commit.write([Statement(sql.PUT_BRINGER, rows)], is_derived=True)
        except StoreError as error:
            _log.warning("bringers not stored", reason=error.reason, detail=error.detail)

    async def load(self) -> dict[ConversationId, PublicKey]:
        """Return those that can be read."""
        try:
            rows = await self._read(sql.SELECT_BRINGERS)
        except StoreError as error:
            _log.warning("bringers not read", reason=error.reason, detail=error.detail)
            return {}
        return dict(filter(None, map(bringer_of, rows)))


def bringer_of(columns: tuple[object, ...]) -> tuple[ConversationId, PublicKey] | None:
    """Return what a row states; None if it is damaged."""
    match columns:
        case (bytes() as conversation, bytes() as key):
            if len(conversation) == ID_BYTES and len(key) == KEY_BYTES:
                return ConversationId(conversation), PublicKey(key)
    return None
