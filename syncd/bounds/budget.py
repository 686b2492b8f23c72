"""The cost budget of a hub: who waits when there is more work than time (spec/11-limits, LIM-8).

Pure. Work is counted in units, not in measured time, so that a run can be repeated.
While the hub keeps up, nobody waits. Once it is behind, shares are equal by pools, which
are the creators of the conversations, then by keys: a key waits that has no less than
the average of its pool, in a pool with no less than the average of all. Strangers are
one pool, and so are new creators, because keys are free.
"""

from replica.ids import PublicKey
from replica.limits import BURST_UNITS, RESERVE_UNITS, UNITS_PER_S
from replica.link import Entries, Ids, Message, Open
from replica.log import Kind
from syncd.bounds.creators import Creators
from syncd.bounds.shares import FORGOTTEN_UNITS, Payer, Shares

UPLOAD_UNITS = 300
"""Units of an upload however small: threads make, sync and rename its file, and the disk waits."""

_FRAME_UNITS, _ENTRY_UNITS, _HEAD_UNITS, _IDS_PER_UNIT = 5, 15, 1, 8
_SENT_BYTES_PER_UNIT = 400
_WORK_PER_UNIT = 4
_RESERVED = frozenset({Kind.MEMBER, Kind.CANCEL})


def units_of(message: Message) -> int:
    """Return the units that a message costs by what it brings."""
    match message:
        case Entries(_, entries, refused):
            return units_of_entries(len(entries) + len(refused))
        case Open(heads=heads):
            return _FRAME_UNITS + _HEAD_UNITS * len(heads or ())
        case Ids(ids=ids):
            return _FRAME_UNITS + len(ids) // _IDS_PER_UNIT
        case _:
            return _FRAME_UNITS


def units_of_entries(count: int) -> int:
    """Return the units that a message with so many entries costs, whether they can be read."""
    return _FRAME_UNITS + _ENTRY_UNITS * count


def units_sent(size_bytes: int) -> int:
    """Return the units that an answer of this size costs."""
    return size_bytes // _SENT_BYTES_PER_UNIT


def units_of_work(work: int) -> int:
    """Return the units for entries that were folded or judged again (LIM-9)."""
    return work // _WORK_PER_UNIT


def is_reserved(message: Message) -> bool:
    """Say whether a message has entries of MEMBER and CANCEL alone, which have a reserve."""
    if not isinstance(message, Entries) or not message.entries:
        return False
    return {entry.header.kind for entry in message.entries} <= _RESERVED


STRANGERS = Payer(b"strangers", PublicKey(b""))
"""All keys that are no members of the conversation they name."""
NEWCOMERS = b"newcomers"
"""The pool of all creators that are new here, as long as they are."""


def vouched(host: PublicKey) -> Payer:
    """Return the payer for the work of a vouched host, which has a pool of its own."""
    return Payer(b"host " + host, host)


class Budget:
    """The recent work of each pool and of each key in it, and the work ahead of the hub."""

    def __init__(self) -> None:
        """Start without work."""
        self._accounts = Shares()
        self._reserves = Shares()
        self._creators = Creators()
        self._ahead = 0.0
        self._at = 0.0

    def payer(self, key: PublicKey, creator: PublicKey, now: float) -> Payer:
        """Return the payer for the work of a member of a creator's conversation."""

        def is_counted(one: PublicKey) -> bool:
            own = self._accounts.of(Payer(NEWCOMERS, one), now)
            return own + self._accounts.of_pool(one, now) >= FORGOTTEN_UNITS

        is_new = self._creators.is_new(creator, now, is_counted)
        return Payer(NEWCOMERS if is_new else creator, key)

    def note_established(self, creator: PublicKey) -> None:
        """Note the creator of a conversation that was stored before the hub started."""
        self._creators.note_known(creator)

    def charge(self, payer: Payer, units: int, now: float, *, reserved: bool = False) -> None:
        """Charge work; `reserved` work is charged to the payer's reserve too."""
        self._ahead = self._ahead_at(now) + units
        self._at = max(now, self._at)
        self._accounts.add(payer, units, now)
        if reserved:
            self._reserves.add(payer, units, now)

    def has_reserve(self, payer: Payer, now: float) -> bool:
        """Say whether a payer's reserve for changes of members and CANCELs is not used up."""
        return self._reserves.of(payer, now) < RESERVE_UNITS

    def is_behind(self, now: float) -> bool:
        """Say whether anybody may have to wait."""
        return self._ahead_at(now) > BURST_UNITS

    def wait_s(self, payer: Payer, now: float) -> float:
        """Return the time that a payer waits before its next call or frame, in seconds.

        It waits if its pool has no less than the average of the pools, and it has no less
        than the average of the pool.
        """
        late = self._ahead_at(now) - BURST_UNITS
        is_waiting = late > 0 and self._accounts.is_heavy(payer, now)
        return late / UNITS_PER_S if is_waiting else 0.0

    def _ahead_at(self, now: float) -> float:
        ahead = self._ahead - UNITS_PER_S * (now - self._at) if now > self._at else self._ahead
        return ahead if ahead > 0 else 0.0
