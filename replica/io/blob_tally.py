"""The blobs of a conversation, counted in files and bytes without a look at its folder (LIM-11).

A folder is listed once, when its first upload begins. An upload counts with its final size.
"""

import threading
from collections import OrderedDict
from pathlib import Path

from replica import limits
from replica.refusals import QuotaExceeded

FOLDERS_MAX = 256
"""Folders whose tally is kept; of the others, the next upload lists the folder again."""


class Tally:
    """The size of each blob of one conversation, whole or announced."""

    def __init__(self, sizes: dict[str, int]) -> None:
        """Start with the sizes in bytes, by name."""
        self._sizes = sizes
        self._total = sum(sizes.values())
        self._lock = threading.Lock()  # uploads are finished in threads

    @property
    def total(self) -> int:
        """Bytes of all."""
        return self._total

    def check(self, name: str, size: int, total_bytes_max: int) -> None:
        """Raise QuotaExceeded if an upload of this name and size is too much."""
        is_new = name not in self._sizes
        total = self._total - self._sizes.get(name, 0) + size
        if (is_new and len(self._sizes) >= limits.BLOB_FILES_MAX) or total > total_bytes_max:
            raise QuotaExceeded("the blobs of this conversation are too many or too large")

    def put(self, name: str, size: int) -> None:
        """Count a blob, in place of one of the same name."""
        with self._lock:
            self._total += size - self._sizes.get(name, 0)
            self._sizes[name] = size

    def drop(self, name: str) -> None:
        """Count a blob no longer."""
        with self._lock:
            self._total -= self._sizes.pop(name, 0)


class Tallies:
    """The tallies of the folders that were used last."""

    def __init__(self) -> None:
        """Start empty."""
        self._of: OrderedDict[Path, Tally] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, folder: Path) -> Tally:
        """Return the tally of a folder; list it if it is not known."""
        with self._lock:
            tally = self._of.pop(folder, None) or Tally(sizes(folder))
            self._of[folder] = tally
            if len(self._of) > FOLDERS_MAX:
                self._of.popitem(last=False)
            return tally

    def clear(self) -> None:
        """Forget all folders, whose files were deleted by themselves."""
        with self._lock:
            self._of.clear()

    def forget(self, folder: Path) -> None:
        """Forget a folder that is deleted."""
        with self._lock:
            self._of.pop(folder, None)


def announced(part: Path) -> int:
    """Return the final size that an upload's file name states, in bytes."""
    return int(part.suffixes[-2][1:])


def sizes(folder: Path) -> dict[str, int]:
    """List a folder: the bytes of each blob by name, the final ones of an upload."""
    found: dict[str, int] = {}
    for file in folder.iterdir() if folder.is_dir() else ():
        name = file.name.partition(".")[0] if file.suffix != ".bad" else file.name
        found[name] = announced(file) if file.suffix == ".part" else file.stat().st_size
    return found
