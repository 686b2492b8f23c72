"""The records of a hub's conversations in its store: a small value each (DECISIONS D545).

What a record states, and for which log it counts, is in syncd/shelves/records.py. The deletion of a
conversation erases its record in the same transaction, unless the page of it is damaged.
"""

import asyncio
from collections.abc import Iterable, Mapping

from replica.errors import StoreError
from replica.ids import ID_BYTES, ConversationId
from replica.io.store import small_rows
from replica.io.store import statements as sql
from replica.io.store.commit import GroupCommit
from replica.io.store.connection import Read
from replica.io.store.transaction import Statement

_EARLIER = "records of conversations"
"""The key under which earlier versions kept all records, from a stop to the next start."""


class HubRecords:
    """The stored records, in one store."""

    def __init__(self, commit: GroupCommit, read: Read) -> None:
        """Write through `commit` and read with `read`; their owner closes them."""
        self._commit = commit
        self._read = read

    async def load(self) -> dict[ConversationId, bytes]:
        """Return all records by conversation; an empty one is damaged. Raises StoreError."""
        found: dict[ConversationId, bytes] = {}
        for key, value, checksum in await self._read(sql.RECORDS):
            conversation = _conversation_of(key)
            if conversation is not None:
                is_bytes = isinstance(value, bytes)  # a damaged one may have any type
                row = small_rows.value_row(_key(conversation), value if is_bytes else b"")
                found[conversation] = value if is_bytes and row[2] == checksum else b""
        return found

    async def write(
        self, rows: Mapping[ConversationId, bytes], without: Iterable[ConversationId] = ()
    ) -> dict[ConversationId, StoreError]:
        """Store records, and erase those of other conversations; durable on return.

        Returns what was refused: a damaged page concerns the records on it, and a full disk
        no entries that are written beside them.
        """
        statements = {c: Statement(sql.DROP_VALUE, [(_key(c),)]) for c in without}
        for conversation, value in rows.items():
            row = small_rows.value_row(_key(conversation), value)
            statements[conversation] = Statement(sql.PUT_META, [row])
        sizes = {c: len(value) for c, value in rows.items()}
        written = (
            self._commit.write([one], size_bytes=sizes.get(c, 0), is_derived=True)
            for c, one in statements.items()
        )
        done = await asyncio.gather(*written, return_exceptions=True)
        refused: dict[ConversationId, StoreError] = {}
        for conversation, error in zip(statements, done, strict=True):
            if isinstance(error, StoreError):
                refused[conversation] = error
            elif error is not None:
                raise error
        return refused

    async def drop_earlier(self) -> None:
        """Erase what earlier versions stored under one key. Raises StoreError."""
        await self._commit.write([Statement(sql.DROP_VALUE, [(_EARLIER,)])], is_derived=True)


def _key(conversation: ConversationId) -> str:
    return small_rows.RECORD + conversation.hex()


def _conversation_of(key: object) -> ConversationId | None:
    try:
        text = key.decode() if isinstance(key, bytes) else ""
        found = bytes.fromhex(text.removeprefix(small_rows.RECORD))
    except ValueError:
        return None
    return ConversationId(found) if len(found) == ID_BYTES else None
