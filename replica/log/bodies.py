"""The bodies of the admitted entries, decoded as they are asked for.

Pure, and private to log.py. It refers to the entries and not to the log, so that a log is freed as
soon as nobody uses it (DECISIONS D547).
"""

from collections.abc import Mapping

from replica.ids import EntryId
from replica.log.body import Body, listed_ids
from replica.log.codec import decode_body
from replica.log.entry import Entry
from replica.log.kinds import CONTROL_KINDS, is_known
from replica.refusals import BodyMalformed


class Bodies:
    """The decoded bodies of one log."""

    def __init__(self, entries: Mapping[EntryId, Entry]) -> None:
        """Read `entries`, all admitted ones by id."""
        self._entries = entries
        self._decoded: dict[EntryId, Body | None] = {}

    def body(self, entry_id: EntryId) -> Body | None:
        """Read the body of an admitted entry; None where missing, unknown or void."""
        if entry_id not in self._decoded:
            entry = self._entries[entry_id]
            try:
                parsed = decode_body(entry.header.kind, entry.body) if entry.body else None
            except BodyMalformed:
                parsed = None  # void; `is_malformed` distinguishes it from missing
            self._decoded[entry_id] = parsed
        return self._decoded[entry_id]

    def forget(self, entry_id: EntryId) -> None:
        """Forget the body of an entry whose body has come."""
        self._decoded.pop(entry_id, None)

    def is_malformed(self, entry_id: EntryId) -> bool:
        """Say whether a present body of a known kind does not parse."""
        entry = self._entries[entry_id]
        if not is_known(entry.header.kind):
            return False
        return entry.body is not None and self.body(entry_id) is None

    def named(self, entry_id: EntryId) -> tuple[EntryId, ...]:
        """Return the ids an admitted entry names: prev, parents, basis, and ids its body lists."""
        header = self._entries[entry_id].header
        if header.kind not in CONTROL_KINDS:
            return header.ancestors()
        return (*header.ancestors(), *listed_ids(self.body(entry_id)))
