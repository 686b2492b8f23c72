"""Repairs of the store: bad rows are quarantined or rewritten (spec/04-link §10).

The rules are those of DECISIONS D77 and D79.
"""

from collections.abc import Sequence

from replica.errors import StoreError
from replica.ids import ConversationId, short
from replica.io.process import get_logger
from replica.io.store import schema
from replica.io.store import statements as sql
from replica.io.store.commit import GroupCommit
from replica.io.store.rows import BadRow, Examined, Row, checksum_of
from replica.io.store.transaction import Statement
from replica.log import Entry
from replica.refusals import StoreCorrupt

_log = get_logger()


class Repairs:
    """The repairs of one store, and the number of bad rows found since it was opened."""

    def __init__(self, commit: GroupCommit) -> None:
        """Write through `commit`, whose owner closes it."""
        self._commit = commit
        self.quarantined_count = 0
        self.has_rebuilt = False
        """Whether the index was rebuilt; once per opening is enough."""

    async def repair(self, conversation: ConversationId, examined: Examined) -> None:
        """Quarantine bad rows, and rewrite sound entries whose keys are damaged."""
        statements = [s for row, entry in examined.misfiled for s in _refiling(row, entry)]
        if examined.unlisted:
            statements.append(sql.listing(examined.unlisted))
        if examined.gone:
            for id_ in examined.gone:
                _log.error("entry gone", conversation=short(conversation), entry=short(id_))
            self.quarantined_count += len(examined.gone)
            gone = [(conversation, i, checksum_of(conversation, i)) for i in sorted(examined.gone)]
            statements.append(Statement(sql.NOTE_GONE, gone))
        await self.set_aside(conversation, examined.bad, statements)

    async def set_aside(
        self,
        conversation: ConversationId,
        bad: Sequence[BadRow],
        others: Sequence[Statement] = (),
    ) -> None:
        """Move bad rows to quarantine and run the other statements; a failure is logged."""
        statements = list(others)
        for found in bad:
            _log.error("row quarantined", conversation=short(conversation), detail=found.why)
            _, rowid, _, *content = found.row
            values = (rowid, *content)
            checksum = checksum_of(conversation, found.id)
            about = (conversation, found.id, found.body_only, found.why, checksum)
            drop = sql.DROP_BODY if found.body_only else sql.DROP_ROW
            statements += [
                Statement(sql.SET_ASIDE, [(*values, *about)]),
                Statement(drop, [values]),
            ]
        self.quarantined_count += len(bad)
        if not statements:
            return
        try:
            try:
                await self._commit.write(statements)
            except StoreCorrupt:
                await self.rebuild_index()
                await self._commit.write(statements)
        except StoreError as error:
            # Reading continues without the bad rows; the next load finds them again.
            _log.warning("row not quarantined", reason=error.reason, detail=error.detail)

    async def rebuild_index(self) -> None:
        """Rebuild the index of entries. Raises StoreError."""
        self.has_rebuilt = True
        await self._commit.write([Statement(text) for text in schema.REBUILD_INDEX])
        _log.warning("store index rebuilt")


def _refiling(row: Row, entry: Entry) -> list[Statement]:
    """Return statements that rewrite a sound entry whose row keys or checksum are damaged."""
    _log.warning("entry refiled", conversation=short(entry.conversation), entry=short(entry.id))
    _, rowid, _, *content = row
    return [Statement(sql.DROP_ROW, [(rowid, *content)]), *sql.appending([entry])]
