"""The sums by which a log is told from another of its size, as a store computes them.

Pure. A store keeps the CRC-32 of each signature beside its entry, and can add them up without
reading the entries (DECISIONS D545, D555).
"""

import zlib
from dataclasses import dataclass

from replica.log.damage import MEMBERSHIP_TRACKS
from replica.log.entry import Entry


@dataclass(slots=True)
class Checksums:
    """Sums of the CRC-32s of the signatures."""

    log: int = 0
    """Of all entries."""
    membership: tuple[int, int] = (0, 0)
    """Number and sum of the membership entries, the genesis among them."""

    def add(self, entry: Entry) -> None:
        """Add one more entry."""
        checksum = zlib.crc32(entry.signature)
        self.log += checksum
        if entry.header.track in MEMBERSHIP_TRACKS:
            count, total = self.membership
            self.membership = count + 1, total + checksum
