"""The part of a disk that a host's derived files leave free. Pure.

The log grows on the same disk, and without it nobody is answered; a derived file only saves
computing time.
"""

from replica import limits

RESERVE_BYTES_MAX = 2 * 1024**3
"""Most bytes that are left free; on a disk of less than ten times that, the share of it that a
hub leaves free too (DISK_SHARE)."""


def reserve_bytes(total_bytes: int) -> int:
    """Return the bytes that derived files leave free on a disk of this size."""
    return min(RESERVE_BYTES_MAX, round((1 - limits.DISK_SHARE) * total_bytes))


def spare_bytes(total_bytes: int, free_bytes: int) -> int:
    """Return the bytes that derived files may still take; less than 0 where some have to go."""
    return free_bytes - reserve_bytes(total_bytes)
