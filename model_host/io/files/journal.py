"""Journals: the tokens of a run, on disk before any reader sees them (spec/07-host §4 step 5).

The head is fsynced, tokens are not: kill -9 loses nothing, and after power loss
the same numerics class computes the same tokens again.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from model_host.generation import (
    HEAD_BYTES,
    JOURNAL_BYTES_MAX,
    JournalHead,
    decode_journal,
    encode_token,
    token_bytes,
)
from model_host.io.files.pack_files import read_first
from model_host.sampling import Choice
from replica.conversation import extend_digest
from replica.errors import StoreError
from replica.ids import Digest, EntryId
from replica.io import FILE_MODE, make_folder, sync_folder, typed_errors
from replica.refusals import StoreReadOnly

_NAME = re.compile("[0-9a-f]{64}")
_WRITE = os.O_WRONLY | os.O_NONBLOCK
"""A pipe in place of a journal is refused: nobody would read it."""


class Journal:
    """The journal of one run."""

    def __init__(self, descriptor: int, digest: Digest) -> None:
        """Use `Journals.create` or `Journals.resume`."""
        self._digest = digest
        self._descriptor: int | None = descriptor

    def append(self, choices: Sequence[Choice]) -> None:
        """Write tokens. Raises StoreFull or StoreError; use `Journals.resume` then."""
        assert self._descriptor is not None, "a closed journal is not written"
        records, digest = [], self._digest
        for choice in choices:
            digest = extend_digest(digest, (choice.token_id,))
            records.append(encode_token(choice, digest))
        with typed_errors():
            _write_all(self._descriptor, b"".join(records))
        self._digest = digest

    def close(self) -> None:
        """Close the file; it stays until `Journals.discard`."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class Journals:
    """The journals of a host, one file per request being answered."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, created durably if missing.

        Raises StoreError, also for one that can't be read, StoreReadOnly, and StoreFull.
        """
        self._folder = folder
        with typed_errors():
            make_folder(folder)
        # No request could be answered, and every one would be sealed before that is noticed.
        if not os.access(folder, os.R_OK | os.X_OK):
            raise StoreError(f"{folder} can't be read")
        if not os.access(folder, os.W_OK):
            raise StoreReadOnly(f"{folder} can't be written")

    def _path(self, request: EntryId) -> Path:
        return self._folder / f"{request.hex()}.journal"

    def create(self, head: JournalHead) -> Journal:
        """Begin a journal; its head is durable on return. Raises StoreFull or StoreError."""
        path = self._path(head.request)
        with typed_errors():
            make_folder(self._folder)  # without it no request is answered until the next start
            descriptor = os.open(path, _WRITE | os.O_CREAT | os.O_TRUNC, FILE_MODE)
            try:
                _write_all(descriptor, head.encode())
                os.fsync(descriptor)
                sync_folder(self._folder)
            except OSError:
                os.close(descriptor)
                raise
        return Journal(descriptor, head.digest)

    def read(self, request: EntryId, logprobs: int = 0) -> tuple[JournalHead, list[Choice]] | None:
        """Return head and tokens of a journal, None if there is none or its head is incomplete.

        `logprobs` is the number that the request asks for. Raises StoreError.
        """
        path = self._path(request)
        with typed_errors():
            if not path.exists():
                return None
            return decode_journal(read_first(path, JOURNAL_BYTES_MAX), logprobs)

    def resume(self, head: JournalHead, choices: Sequence[Choice], logprobs: int = 0) -> Journal:
        """Open a journal to write after `choices`; an incomplete token at the end is cut off.

        `logprobs` is as in `read`. Raises StoreError.
        """
        path = self._path(head.request)
        token_ids = tuple(choice.token_id for choice in choices)
        size = HEAD_BYTES + len(choices) * token_bytes(logprobs)
        with typed_errors():
            descriptor = os.open(path, _WRITE)
            try:
                os.ftruncate(descriptor, size)
                os.lseek(descriptor, size, os.SEEK_SET)
            except OSError:
                os.close(descriptor)
                raise
        return Journal(descriptor, extend_digest(head.digest, token_ids))

    def requests(self) -> list[EntryId]:
        """Return the requests that have journals. Raises StoreError."""
        with typed_errors():
            names = [path.stem for path in self._folder.glob("*.journal")]
        return [EntryId(bytes.fromhex(name)) for name in names if _NAME.fullmatch(name)]

    def discard(self, request: EntryId) -> None:
        """Delete a journal. Raises StoreError."""
        with typed_errors():
            self._path(request).unlink(missing_ok=True)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes; on a nearly full disk one call may write only a part."""
    while data:
        data = data[os.write(descriptor, data) :]
