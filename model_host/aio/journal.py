"""Journals: the tokens of a run, on disk before anyone sees them (spec/07-host §4.3).

The head is fsynced, tokens are written without: kill -9 loses nothing, and
after power loss the same numerics class computes the same tokens again.
"""

import os
from pathlib import Path

from model_host.runner import JournalHead, encode_journal_token
from replica.ids import EntryId
from replica.refusals import StoreFull


class Journal:
    """The journal of one run."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Use `Journals.create` or `Journals.resume`."""
        self._path = path
        self._descriptor = descriptor

    def append(self, token_id: int) -> None:
        """Write one token. Raises StoreFull."""
        try:
            os.write(self._descriptor, encode_journal_token(token_id))
        except OSError as error:
            raise StoreFull(f"the journal can't grow: {error.strerror}") from error

    def close(self, *, delete: bool) -> None:
        """Let go of the file; delete it once the generation is in the log."""
        os.close(self._descriptor)
        if delete:
            self._path.unlink(missing_ok=True)


class Journals:
    """The journals of a host, one file per request being answered."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, created if need be."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _path(self, request: EntryId) -> Path:
        return self._folder / f"{request.hex()}.journal"

    def create(self, head: JournalHead) -> Journal:
        """Begin a journal; its head is durable on return. Raises StoreFull."""
        path = self._path(head.request)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.write(descriptor, head.encode())
            os.fsync(descriptor)
            folder = os.open(self._folder, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        except OSError as error:
            raise StoreFull(f"the journal can't be written: {error.strerror}") from error
        return Journal(path, descriptor)

    def read(self, request: EntryId) -> tuple[JournalHead, list[int]] | None:
        """Return what a journal says, None where there is none or its head was cut off."""
        path = self._path(request)
        return JournalHead.decode(path.read_bytes()) if path.exists() else None

    def resume(self, head: JournalHead, token_ids: list[int]) -> Journal:
        """Go on writing after `token_ids`; a torn token at the end is cut off."""
        path = self._path(head.request)
        descriptor = os.open(path, os.O_WRONLY)
        size = len(head.encode()) + len(token_ids) * len(encode_journal_token(0))
        os.ftruncate(descriptor, size)
        os.lseek(descriptor, size, os.SEEK_SET)
        return Journal(path, descriptor)

    def discard(self, request: EntryId) -> None:
        """Delete a journal that is of no use any more."""
        self._path(request).unlink(missing_ok=True)
