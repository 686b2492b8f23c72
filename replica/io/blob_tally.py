"""The blobs of a conversation, counted in files and bytes without a look at its folder (LIM-11).

A folder is listed once, when its first upload begins. An upload counts with its final size.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from replica import limits
from replica.refusals import QuotaExceeded

FOLDERS_MAX = 256
"""Folders whose tally is kept; of the others, the next upload lists the folder again."""


class Tally:
    """The size of each blob of one conversation, whole or announced."""

    def __init__(self, sizes: dict[str, int], uploads: Iterable[str] = ()) -> None:
        """Start with the sizes in bytes, by name, and the names of those that are not whole."""
        self._sizes = sizes
        self._uploads = set(uploads)
        self._total = sum(sizes.values())
        self._lock = threading.Lock()  # uploads are finished in threads

    @classmethod
    def listed(cls, folder: Path) -> Self:
        """Count the files of a folder."""
        found = list(_files(folder))
        uploads = (name for name, _, is_whole in found if not is_whole)
        return cls({name: size for name, size, _ in found}, uploads)

    @property
    def total(self) -> int:
        """Bytes of all."""
        return self._total

    def upload(self, name: str) -> int | None:
        """Return the final size of an upload in progress, None if there is none."""
        return self._sizes.get(name) if name in self._uploads else None

    def check(self, name: str, size: int, total_bytes_max: int) -> None:
        """Raise QuotaExceeded if an upload of this name and size is too much."""
        is_new = name not in self._sizes
        total = self._total - self._sizes.get(name, 0) + size
        if (is_new and len(self._sizes) >= limits.BLOB_FILES_MAX) or total > total_bytes_max:
            raise QuotaExceeded("the blobs of this conversation are too many or too large")

    def begin(self, name: str, size: int) -> None:
        """Count an upload by its final size, in place of one of the same name."""
        with self._lock:
            self._total += size - self._sizes.get(name, 0)
            self._sizes[name] = size
            self._uploads.add(name)

    def complete(self, name: str) -> None:
        """Note that an upload has become a whole blob."""
        with self._lock:
            self._uploads.discard(name)

    def drop(self, name: str) -> None:
        """Count a blob no longer."""
        with self._lock:
            self._total -= self._sizes.pop(name, 0)
            self._uploads.discard(name)


class Tallies:
    """The tallies of the folders that were used last."""

    def __init__(self) -> None:
        """Start empty."""
        self._of: OrderedDict[Path, Tally] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, folder: Path) -> Tally:
        """Return the tally of a folder; list it if it is not known."""
        with self._lock:
            tally = self._of.pop(folder, None) or Tally.listed(folder)
            self._of[folder] = tally
            if len(self._of) > FOLDERS_MAX:
                self._of.popitem(last=False)
            return tally

    def known(self, folder: Path) -> Tally | None:
        """Return the tally of a folder if it is known; it never waits."""
        return self._of.get(folder)

    def clear(self) -> None:
        """Forget all folders, whose files were deleted by themselves."""
        with self._lock:
            self._of.clear()

    def forget(self, folder: Path) -> None:
        """Forget a folder that is deleted."""
        with self._lock:
            self._of.pop(folder, None)


def part_name(name: str, size: int) -> str:
    """Return the file name of an upload of `size` bytes in progress."""
    return f"{name}.{size}.part"


def stored_bytes(folder: Path) -> int:
    """List a folder: the bytes of all its blobs, uploads counted by their final size."""
    return sum(size for _, size, _ in _files(folder))


def _files(folder: Path) -> Iterator[tuple[str, int, bool]]:
    """List a folder: name and bytes of each blob, and whether it is whole or an upload."""
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.suffix == ".part":
            yield file.name.partition(".")[0], int(file.suffixes[-2][1:]), False
        else:
            yield file.name, file.stat().st_size, True
