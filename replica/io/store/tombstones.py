"""The tombstones of conversations that were deleted at a hub (spec/04-link §9).

A lost tombstone would let members restore what an owner deleted, and one too many would
erase what was acknowledged. So each is a row of its own in two tables, with a checksum, in
both at once or in neither: no damage of one page hides both (DECISIONS D406, D473). A row
says whether the deletion is finished; if not, the next start of the hub completes it.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from replica.errors import StoreError
from replica.ids import ID_BYTES, ConversationId
from replica.io.process import get_logger
from replica.io.store import small_rows
from replica.io.store import statements as sql
from replica.io.store.commit import GroupCommit
from replica.io.store.connection import Read
from replica.io.store.high_water import MarkFile
from replica.io.store.rows import checksum_of
from replica.io.store.small_rows import Row
from replica.io.store.transaction import Statement
from replica.refusals import ValueDamaged

_log = get_logger()


def tombstone_of(columns: Iterable[object]) -> tuple[ConversationId, bool] | None:
    """Return what a row states, a conversation and whether it is erased; None if it is damaged."""
    match list(columns):
        case [bytes() as conversation, int() as finished, int() as checksum]:
            is_sound = len(conversation) == ID_BYTES and finished in (0, 1)
            if is_sound and checksum == _checksum(conversation, finished):
                return ConversationId(conversation), bool(finished)
    return None


def putting(conversations: Iterable[ConversationId], *, finished: bool) -> list[Statement]:
    """Return the statements that store tombstones, or what they state from now on."""
    rows = [(one, int(finished), _checksum(one, finished)) for one in conversations]
    return [Statement(put, rows) for put in sql.PUT_TOMBSTONE] if rows else []


def _checksum(conversation: bytes, finished: int) -> int:
    return checksum_of(conversation, bytes([finished]))


@dataclass(slots=True)
class _Table:
    """The rows of one of the tables."""

    sound: dict[ConversationId, bool] = field(default_factory=dict)
    bad: list[Row] = field(default_factory=list)

    def unknown(self, found: Collection[ConversationId]) -> tuple[list[Row], int]:
        """Return the damaged rows that are of none of these, and how many of them may be lost.

        What a mended row left behind still has the conversation or the checksum of its tombstone.
        """
        of_checksum = {_checksum(c, n): c for c in found for n in (0, 1)} if self.bad else {}
        told: set[ConversationId] = set()
        unknown: list[Row] = []
        for row in self.bad:
            conversation = row[0] if row[0] in found else of_checksum.get(row[2])
            if conversation is None:
                unknown.append(row)
            else:
                told.add(conversation)
        # The others that the table lacks are as likely to be among the rows that tell nothing.
        return unknown, len(unknown) - len(set(found) - self.sound.keys() - told)


@dataclass(frozen=True, slots=True)
class _Judged:
    """What both tables state together."""

    found: dict[ConversationId, bool]
    lacking: dict[ConversationId, bool]
    """Those that one of the tables lacks."""
    legible: frozenset[ConversationId]
    """Those damaged in both tables whose conversation is confirmed."""
    lost: int
    """How many more may be damaged in both."""


def _judged(one: _Table, other: _Table) -> _Judged:
    found = one.sound | other.sound
    for conversation, is_finished in one.sound.items():
        found[conversation] &= is_finished
    lacking = {c: f for c, f in found.items() if c not in one.sound or c not in other.sound}
    (rows, lost), (others, others_lost) = (t.unknown(found.keys()) for t in (one, other))
    legible = confirmed([*rows, *others])
    return _Judged(found, lacking, legible, max(0, min(lost, others_lost) - len(legible)))


def confirmed(damaged: Collection[Row]) -> frozenset[ConversationId]:
    """Return the conversations of damaged rows that two rows name, or that a checksum confirms."""
    rows_of = Counter(c for c, *_ in damaged if isinstance(c, bytes) and len(c) == ID_BYTES)
    checksums = {row[2] for row in damaged}
    return frozenset(
        ConversationId(c)
        for c, rows in rows_of.items()
        if rows > 1 or {_checksum(c, finished) for finished in (0, 1)} & checksums
    )


class Tombstones:
    """The durable tombstones in one store."""

    def __init__(self, commit: GroupCommit, read: Read, mark: MarkFile) -> None:
        """Write through `commit` and to `mark`, and read with `read`; their owner closes them."""
        self._commit = commit
        self._mark = mark
        self._read = read

    async def put(self, conversations: Collection[ConversationId]) -> None:
        """Store tombstones of deletions that begin; return once they are durable.

        After a StoreError there is none of them.
        """
        if conversations:
            await self._commit.write(putting(conversations, finished=False))
            self._mark.write(self._mark.mark.after_tombstones(tuple(conversations)))

    async def finish(self, conversations: Iterable[ConversationId]) -> None:
        """Note durably that all of them is erased. Where entries are stored, see `Store.delete`."""
        await self._commit.write(putting(conversations, finished=True))

    async def load(self) -> dict[ConversationId, bool]:
        """Return the conversations with a tombstone, and whether each deletion is finished.

        A row that is damaged or missing in one table is written anew from the other one; what
        is left of it counts no more. Raises ValueDamaged if one may be damaged in both, StoreError.
        """
        judged = await self._judge()
        if judged.lost or judged.legible:
            raise ValueDamaged(f"both rows of a tombstone in {self._mark.path.parent} are damaged")
        await self._mend(judged.lacking)
        return judged.found | await self._adopted(judged.found.keys())

    async def repair(self) -> tuple[int, int]:
        """Keep what is legible of damaged tombstones, drop the rest; return how many of either.

        To be called before damaged values are dropped.
        """
        judged = await self._judge()
        await self._commit.write(putting(judged.legible, finished=False))
        await self._mend(judged.lacking)
        for select, drop in zip(sql.SELECT_TOMBSTONES, sql.DROP_TOMBSTONE, strict=True):
            if bad := (await self._table(select)).bad:
                await self._commit.write([Statement(drop, bad)])
        if judged.lost:
            held = judged.found.keys() | judged.legible
            self._mark.write(self._mark.mark.without_tombstones(held, judged.lost))
        return len(judged.legible) + len(judged.lacking), judged.lost + await self._unread_values()

    async def _judge(self) -> _Judged:
        one, other = [await self._table(select) for select in sql.SELECT_TOMBSTONES]
        return _judged(one, other)

    async def _table(self, select: str) -> _Table:
        table = _Table()
        for row in await self._read(select):
            found = tombstone_of(row)
            if found is None:
                table.bad.append(row)
            else:
                table.sound[found[0]] = found[1]
        return table

    async def _mend(self, lacking: dict[ConversationId, bool]) -> None:
        """Write anew the tombstones that a table lacks.

        What is damaged is not deleted here: of a damaged page that could free the pages of others.
        """
        if not lacking:
            return
        _log.warning("tombstones damaged", count=len(lacking))
        statements = []
        for finished in (False, True):
            these = [one for one, is_finished in lacking.items() if is_finished is finished]
            statements += putting(these, finished=finished)
        try:
            await self._commit.write(statements)
        except StoreError as error:
            # The other row is sound; the next start tries again.
            _log.warning("tombstones not mended", reason=error.reason, detail=error.detail)

    async def _values(self) -> tuple[list[Row], set[ConversationId], ValueDamaged | None]:
        """Return the values of a store of three steps, what they name, and why none is sound."""
        old, found, damaged, is_read = list[Row](), set[ConversationId](), None, False
        for key in small_rows.TOMBSTONES:
            rows = await self._read(sql.GET_META, key)
            old += rows
            try:
                value = small_rows.value_of(key, rows)
            except ValueDamaged as error:
                damaged = error
            else:
                is_read = is_read or value is not None
                found |= small_rows.ids_in(value or b"")
        return old, found, None if is_read else damaged

    async def _unread_values(self) -> int:
        """Return how many tombstones the values of a store of three steps had, if none is sound."""
        old, _, damaged = await self._values()
        sizes = [len(value) for _, value, _ in old if isinstance(value, bytes)]
        return max(1, max(sizes, default=0) // ID_BYTES) if damaged else 0

    async def _adopted(self, known: Iterable[ConversationId]) -> dict[ConversationId, bool]:
        """Move tombstones of a store of three steps, which were one value, into rows."""
        old, found, damaged = await self._values()
        if damaged is not None:
            raise damaged
        new = found.difference(known)
        if old:
            drops = [Statement(drop, old) for drop in (sql.DROP_META, sql.DROP_COPY)]
            await self._commit.write([*putting(new, finished=False), *drops])
        if new:
            self._mark.write(self._mark.mark.after_tombstones(tuple(new)))
        return dict.fromkeys(new, False)
