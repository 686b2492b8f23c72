"""The blobs of a conversation, counted in files and bytes without a look at its folder (LIM-11).

A file counts with the bytes it has on disk, and the file of an open upload with its final size:
those bytes are reserved. A folder is listed once, when it is first asked about. Whoever changes
its files holds its tally, which is kept meanwhile, so a listing and a change never overlap.
All of it happens in the event loop; only the listing is done in a thread.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from replica import limits
from replica.ids import ConversationId
from replica.io.blobs.blob_files import (
    BlobState,
    announced_in,
    bad_name,
    file_sizes,
    in_thread,
    name_of,
    part_name,
    state_of,
)
from replica.io.blobs.blob_folder import BlobFolder
from replica.refusals import QuotaExceeded

FOLDERS_MAX = 256
"""Folders whose tally is kept; of the others, the next upload lists the folder again."""


class BlobQuota(Protocol):
    """The quota of a disk that blobs share with other files (LIM-15)."""

    def check_blobs(
        self, conversation: ConversationId, more_bytes: int, more_files: int = 0
    ) -> None:
        """Raise QuotaExceeded unless the blobs of a conversation may grow by so much."""

    def set_blobs(
        self, conversation: ConversationId, store: str, size_bytes: int, files: int
    ) -> None:
        """Set the bytes and the files that the blobs of a conversation have now in one store."""


class Tally:
    """The files of one conversation's blobs."""

    def __init__(
        self, sizes: dict[str, int], note: Callable[[int, int], None], folder: BlobFolder
    ) -> None:
        """Start with the bytes of each file, by name.

        `note` is called with each new total and the number of files.
        """
        self.folder = folder
        """The folder of the files, which is synced once before any of them is reported."""
        self._sizes = sizes
        self._announced = dict(filter(None, map(announced_in, sizes)))
        self._note = note
        self.total = sum(sizes.values())
        """Bytes of all files."""
        self.holders = 0
        """Users that may change files now; see Tallies.held."""
        note(self.total, len(self._sizes))

    def announced(self, blob: str) -> int | None:
        """Return the final size of an upload in progress, None if there is none."""
        return self._announced.get(blob)

    def has(self, blob: str) -> bool:
        """Say whether there is a file of a blob, whole or an upload in progress."""
        return blob in self._sizes or blob in self._announced

    async def state(self, whole: Path) -> BlobState:
        """Return the durable state of a blob that nobody writes here. Raises StoreError."""
        blob = whole.name
        return await in_thread(
            state_of, whole, self.announced(blob), self.folder, is_counted=blob in self._sizes
        )

    def growth(self, blob: str, size: int) -> int:
        """Return the bytes that an open upload of `size` bytes adds to what is counted.

        An upload of the same blob is resumed or, if its size is another one, replaced.
        """
        return size - self._sizes.get(self._part_before(blob, size), 0)

    def is_new(self, blob: str, size: int) -> bool:
        """Say whether an open upload of `size` bytes has a file of its own."""
        return self._part_before(blob, size) not in self._sizes

    def check(self, blob: str, size: int, total_bytes_max: int) -> None:
        """Raise QuotaExceeded if an upload of this blob and size is too much."""
        total = self.total + self.growth(blob, size)
        is_full = self.is_new(blob, size) and len(self._sizes) >= limits.BLOB_FILES_MAX
        if is_full or total > total_bytes_max:
            raise QuotaExceeded("the blobs of this conversation are too many or too large")

    def open(self, blob: str, size: int) -> None:
        """Reserve the final size of an upload; `close`, `complete`, `drop` or `keep` follows."""
        self._announced[blob] = size
        self._set(part_name(blob, size), size)

    def keep(self, blob: str, size: int, announced: int) -> None:
        """Take `open` back: the upload of another size that it was to replace stays."""
        self.drop(part_name(blob, size))
        self._announced[blob] = announced

    def close(self, blob: str, size: int, stored_bytes: int) -> None:
        """Count an upload by its bytes on disk; it may be resumed."""
        self._set(part_name(blob, size), stored_bytes)

    def complete(self, blob: str, size: int) -> None:
        """Note that an upload has become a whole blob."""
        self._set(blob, size)
        self.drop(part_name(blob, size))

    def set_aside(self, blob: str, size: int) -> None:
        """Note that a whole blob was renamed, since its bytes no longer match."""
        self._set(bad_name(blob), size)
        self.drop(blob)

    def drop(self, file: str) -> None:
        """Count a file no longer."""
        upload = announced_in(file)
        if upload is not None and self._announced.get(upload[0]) == upload[1]:
            del self._announced[upload[0]]
        self._set(file, None)

    def clear(self) -> None:
        """Count nothing any more."""
        for file in tuple(self._sizes):
            self.drop(file)

    def _part_before(self, blob: str, size: int) -> str:
        """Return the file name of the upload in progress; without one, that of a new one."""
        return part_name(blob, self._announced.get(blob, size))

    def _set(self, file: str, size: int | None) -> None:
        before = self._sizes.pop(file, 0)
        if size is not None:
            self._sizes[file] = size
        self.total += (size or 0) - before
        self._note(self.total, len(self._sizes))


class Tallies:
    """The tallies of the conversations that were used last."""

    def __init__(self, folder: Path, note: Callable[[ConversationId, int, int], None]) -> None:
        """Count the folders in `folder`; `note` is called with each new total and its files."""
        self._folder = folder
        self._note = note
        self._of: OrderedDict[ConversationId, Tally] = OrderedDict()
        self._listings: dict[ConversationId, asyncio.Task[None]] = {}

    async def of(self, conversation: ConversationId) -> Tally:
        """Return the tally of a conversation; list its folder if it is not known.

        It is right until the caller's next await. Raises StoreError.
        """
        while (tally := self._of.get(conversation)) is None:
            task = self._listings.get(conversation)
            if task is None:
                task = asyncio.create_task(self._list(conversation), name="list of blobs")
                self._listings[conversation] = task
            await asyncio.shield(task)
        self._of.move_to_end(conversation)
        return tally

    @asynccontextmanager
    async def held(self, conversation: ConversationId) -> AsyncIterator[Tally]:
        """Hold a tally while files of its folder are changed. Raises StoreError."""
        tally = await self.of(conversation)
        tally.holders += 1
        try:
            yield tally
        finally:
            tally.holders -= 1

    def clear(self, conversation: ConversationId) -> None:
        """Count nothing of a conversation whose folder was deleted."""
        tally = self._of.pop(conversation, None)
        if tally is not None:
            tally.clear()

    async def _list(self, conversation: ConversationId) -> None:
        try:
            path = self._folder / name_of(conversation)
            sizes = await in_thread(file_sizes, path)
            self._of[conversation] = Tally(
                sizes, partial(self._note, conversation), BlobFolder(path)
            )
            self._evict()
        finally:
            del self._listings[conversation]

    def _evict(self) -> None:
        """Forget tallies that were not used for longest; the newest is about to be used."""
        excess = len(self._of) - FOLDERS_MAX
        if excess > 0:
            unused = [one for one in tuple(self._of)[:-1] if not self._of[one].holders]
            for conversation in unused[:excess]:
                del self._of[conversation]
