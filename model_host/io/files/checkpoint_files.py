"""Checkpoints on disk: pieces in pack files, manifests last (spec/08-checkpoint §3, §4).

    <root>/<hash of the conversation>/00000000.pack           pieces, appended
                                      <n>-<lineage>.manifest  written last, renamed into place

Derived state: any file may be deleted at any time. Nothing is used before its length,
digest, MAC and lineage have been checked; a file that fails is removed, and the caller
prefills. Old checkpoints are evicted after the new one is written (DECISIONS D74), or before
where the disk has no room for both (DECISIONS D585).
One process per folder, any number of threads: one of them writes at a time, and a file
is written without the lock under which manifests are listed, read and removed.
"""

import os
import threading
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path

import numpy as np
from blake3 import blake3

from model_host.errors import (
    CheckpointCorrupt,
    CheckpointDropped,
    CheckpointMissing,
    CheckpointTooLarge,
)
from model_host.io.files import pack_files
from model_host.io.files.manifest_files import MANIFESTS_MAX, ManifestFiles, Spare, manifest_path
from model_host.io.files.pack_files import NewFiles
from model_host.kv import (
    GROUP_TOKENS,
    Bytes,
    Lineage,
    Manifest,
    PageSource,
    PageTarget,
    Piece,
    StoreCounters,
    Stored,
    encode_manifest,
    piece_bounds,
    stored_pieces,
    usable_tokens,
)

Payload = tuple[int, bytes, Bytes]
"""Position after the last token, lineage key there, and the bytes of a piece."""


class Checkpoints:
    """A PageStore (model_host/kv/page_store.py) on disk, which evicts the least recently used."""

    def __init__(
        self, root: Path, *, mac_key: bytes, budget_bytes: int, spare: Spare | None = None
    ) -> None:
        """Keep checkpoints below `root`, created private; authenticate with `mac_key`.

        Only what is to `spare` of the disk is used, by default all but its reserve.
        """
        self._mac_key = mac_key
        self.budget_bytes = budget_bytes
        """The most bytes of all checkpoints, and so of one."""
        self.counters = StoreCounters()
        self._writing = threading.Lock()
        """Held by the one thread that writes or deletes a checkpoint."""
        self._lock = threading.RLock()
        """Guards what follows, and the names of files; held for no write of payloads."""
        self._files = ManifestFiles(root, mac_key, self.counters, spare)
        self._files.evict_beyond(budget_bytes)  # an earlier process may have had a larger one
        self._new = NewFiles()
        self._discards = 0
        self._distrusted: set[bytes] = set()

    @property
    def nbytes(self) -> int:
        """Return the bytes of all checkpoints on disk."""
        with self._lock:
            return self._files.nbytes

    def manifests(self, conversation: bytes) -> list[Manifest]:
        """Return a conversation's checkpoints, the newest first; broken ones are removed."""
        with self._lock:
            return [
                manifest for _, manifest in self._files.load(self._files.folder(conversation))[0]
            ]

    def newest(self, conversation: bytes, namespace: bytes) -> Manifest:
        """Return the newest checkpoint of a namespace. Raises CheckpointMissing."""
        for manifest in self.manifests(conversation):
            if manifest.namespace == namespace not in self._distrusted:
                return manifest
        raise CheckpointMissing("no checkpoint of this conversation is stored here")

    def delete(self, conversation: bytes) -> None:
        """Remove all checkpoints of a conversation."""
        with self._writing, self._lock:
            self._files.remove(self._files.folder(conversation).name)

    def distrust(self, namespace: bytes) -> None:
        """Neither find nor store anything of a namespace from now on. See PageStore."""
        with self._lock:
            self._distrusted.add(namespace)

    def make_room(
        self, nbytes: int = 0, *, beside: bytes | None = None, is_full: bool = False
    ) -> None:
        """Evict the least recently used until the disk has so much to spare beyond its reserve.

        The conversation `beside` stays. Where the disk `is_full` for the log, whatever is free
        by its own account, one goes in any case. Raises CheckpointDiskFull or
        CheckpointWriteFailed.
        """
        with self._lock:
            if is_full:
                self._files.evict_first()
            self._files.make_room(nbytes, self._files.folder(beside) if beside else None)

    # --- save -------------------------------------------------------------------

    def save(
        self,
        conversation: bytes,
        namespace: bytes,
        seal: bytes,
        generation: bytes,
        ids: Sequence[int],
        source: PageSource,
    ) -> Manifest | None:
        """Store the keys and values of `ids`; fsynced. See PageStore.

        Only tokens not yet stored for the same lineage are written. Others are evicted once
        this one is complete, so the budget is exceeded meanwhile. Raises CheckpointTooLarge,
        CheckpointDiskFull or CheckpointWriteFailed.
        """
        if not ids or namespace in self._distrusted:
            return None
        assert len(ids) <= source.tokens, "only positions in memory can be stored"
        lineage = Lineage(namespace, ids)
        head = Manifest(seal, generation, len(ids), lineage.at(len(ids)), namespace, ())
        self._check_size(len(ids) * source.bytes_per_token)
        with self._writing, self._files.writing(conversation) as folder:
            known, pack = self._fitting(folder, namespace, lineage, source.bytes_per_token)
            first = known[-1].stop if known else 0
            self.make_room((len(ids) - first) * source.bytes_per_token)
            bounds = piece_bounds(first, len(ids))
            new = ((stop, lineage.at(stop), source.read(start, stop)) for start, stop in bounds)
            return self._write(folder, head, known, pack, new)

    def add(self, conversation: bytes, head: Manifest, payloads: Iterable[Bytes]) -> Manifest:
        """Store a checkpoint that was written elsewhere: the payloads of its pieces, in order.

        They are authentic: the caller has checked their seals. The locations of the pieces
        in `head` are not used. Raises what `save` and `payloads` raise; CheckpointCorrupt
        for a payload with another length or digest than its piece has, and CheckpointDropped
        for a namespace that is distrusted, from the start or meanwhile.
        """
        _check_trusted(head.namespace, self._distrusted)
        self._check_size(head.nbytes)
        with self._writing, self._files.writing(conversation) as folder:
            self.make_room(head.nbytes)
            pack = max((number + 1 for number, _ in pack_files.packs(folder)), default=0)
            checked = (_checked(*each) for each in zip(head.pieces, payloads, strict=True))
            return self._write(folder, head, (), pack, checked)

    def _check_size(self, size: int) -> None:
        if size > self.budget_bytes:
            raise CheckpointTooLarge(
                f"The checkpoint takes {size} bytes; the host allows {self.budget_bytes}."
            )

    def _fitting(
        self, folder: Path, namespace: bytes, lineage: Lineage, bytes_per_token: int
    ) -> tuple[tuple[Piece, ...], int]:
        """Return the stored pieces a checkpoint can extend, and its first pack file.

        If old and new together exceed the budget, it is written whole into files of its own
        beside the old ones, which are removed afterwards.
        """
        with self._lock:
            manifests = [manifest for _, manifest in self._files.load(folder)[0]]
            size = pack_files.folder_bytes(folder)
        known = stored_pieces(manifests, namespace, lineage)
        fresh = (len(lineage) - (known[-1].stop if known else 0)) * bytes_per_token
        if size + fresh <= self.budget_bytes:
            return known, 0
        return (), max((number + 1 for number, _ in pack_files.packs(folder)), default=0)

    def _write(
        self,
        folder: Path,
        head: Manifest,
        known: tuple[Piece, ...],
        first_pack: int,
        new: Iterable[Payload],
    ) -> Manifest:
        """Append the new pieces, publish the manifest, evict others."""
        files = self._new = NewFiles()
        discards = self._discards if known else None
        try:
            pieces = (*known, *self._append(folder, new, first_pack, files))
            files.sync()
            manifest = replace(head, pieces=pieces)
            draft = self._write_draft(folder, manifest, files)
            with self._lock:
                # A page may have been found wrong meanwhile.
                _check_trusted(head.namespace, self._distrusted)
                path = self._publish(draft, files, discards)
        except OSError as error:
            files.undo()
            raise pack_files.write_error(error) from error
        except BaseException:  # whatever ends it: bytes without a manifest count for nobody
            files.undo()
            raise
        finally:
            with self._lock:
                self._new = NewFiles()
                self._files.measure(folder)
        self.counters.pieces_reused += len(known)
        with self._lock:
            self._files.evict(folder, path, self.budget_bytes)
        return manifest

    def _append(
        self, folder: Path, new: Iterable[Payload], first_pack: int, files: NewFiles
    ) -> Iterator[Piece]:
        """Append pieces to the pack files; yield their locations."""
        for stop, lineage, payload in new:
            path = pack_files.pack_for(folder, payload.nbytes, first_pack)
            with self._lock:  # files that others may not remove
                self._files.make_room(payload.nbytes)  # the log may have grown meanwhile
                size = files.add(path)
            with pack_files.open_file(path, "a") as file:
                pack_files.write_all(file, payload.data)
            self.counters.pieces_written += 1
            self.counters.bytes_written += payload.nbytes
            digest = blake3(payload.data).digest()
            yield Piece(stop, lineage, digest, path.name, size, payload.nbytes)

    def _write_draft(self, folder: Path, manifest: Manifest, files: NewFiles) -> Path:
        """Write the manifest under another name; durable on return."""
        draft = manifest_path(folder, manifest).with_suffix(".draft")
        data = encode_manifest(manifest, self._mac_key)
        with self._lock:
            files.add(draft)
        with pack_files.open_file(draft, "w") as file:
            pack_files.write_all(file, data)
            os.fsync(file.fileno())
        self.counters.bytes_written += len(data)
        return draft

    def _publish(self, draft: Path, files: NewFiles, discards: int | None) -> Path:
        """Rename the manifest into place, and make its name durable.

        `discards` is their number when it began to extend a checkpoint, None if it extends
        none. Raises CheckpointDropped if there were more since.
        """
        if discards not in (None, self._discards):
            raise CheckpointDropped("A checkpoint that it extends failed its checks.")
        path = draft.with_suffix(".manifest")
        draft.replace(path)
        files.replaced(path)
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return path

    # --- restore ----------------------------------------------------------------

    def find(
        self, conversation: bytes, namespace: bytes, ids: Sequence[int], common: int = 0
    ) -> Stored:
        """Return the longest stored prefix of `ids` beyond `common` tokens. See PageStore.

        Raises CheckpointMissing or CheckpointCorrupt.
        """
        if namespace in self._distrusted:
            raise CheckpointMissing
        lineage = Lineage(namespace, ids[: len(ids) - 1])
        with self._lock:
            found, broken = self._files.load(self._files.folder(conversation))
        usable = [usable_tokens(manifest, namespace, lineage) for _, manifest in found]
        tokens = max(usable, default=0)
        if tokens > common:
            return Stored(conversation, found[usable.index(tokens)][1], tokens)
        if broken:
            raise CheckpointCorrupt("A manifest failed its checks and was removed.")
        raise CheckpointMissing

    def load(self, stored: Stored, target: PageTarget) -> None:
        """Read, check and write pieces one by one. See PageStore. Raises CheckpointCorrupt.

        One buffer of a group's size stays in the processor's cache from read to copy.
        Raises CheckpointMissing if the checkpoint was evicted since it was found.
        """
        folder, manifest = self._files.folder(stored.conversation), stored.manifest
        with self._lock:  # so that no pack is removed under way
            if not manifest_path(folder, manifest).exists():
                raise CheckpointMissing
            try:
                for piece, payload in self._read(folder, manifest, stored.tokens, target):
                    target.write(piece.stop, payload)
            except (CheckpointCorrupt, OSError) as error:
                self._discard(folder, manifest)
                raise CheckpointCorrupt(f"A checkpoint was removed: {error}") from error
            with suppress(OSError):  # a file system that refuses writes can still be read
                os.utime(manifest_path(folder, manifest))
            self._files.measure(folder)

    def _read(
        self, folder: Path, manifest: Manifest, stop: int, target: PageTarget
    ) -> Iterator[tuple[Piece, Bytes]]:
        """Yield the pieces up to `stop` with their bytes, checked; the buffer is used again."""
        buffer = np.empty(GROUP_TOKENS * target.bytes_per_token, np.uint8)
        handles: dict[str, FileIO] = {}
        try:
            while target.tokens < stop:
                piece = manifest.pieces[manifest.index_at(target.tokens)]
                payload = buffer[: (piece.stop - target.tokens) * target.bytes_per_token]
                if piece.file not in handles:
                    handles[piece.file] = pack_files.open_file(folder / piece.file, "r")
                pack_files.read_piece(handles[piece.file], piece, payload)
                yield piece, payload
        finally:
            for handle in handles.values():
                handle.close()

    def read(self, conversation: bytes, piece: Piece) -> Bytes:
        """Return the bytes of one piece, checked. Raises CheckpointCorrupt."""
        payload = np.empty(piece.length, np.uint8)
        try:
            with pack_files.open_file(self._files.folder(conversation) / piece.file, "r") as file:
                pack_files.read_piece(file, piece, payload)
        except OSError as error:
            raise CheckpointCorrupt(f"a piece can't be read: {error.strerror}.") from error
        return payload

    def _discard(self, folder: Path, broken: Manifest) -> None:
        """Remove every checkpoint that shares a piece with a broken one."""
        bad = {(piece.file, piece.offset) for piece in broken.pieces}
        for path, manifest in self._files.load(folder)[0]:
            if any((piece.file, piece.offset) in bad for piece in manifest.pieces):
                pack_files.drop(path)
        self._discards += 1
        self.counters.corrupt += 1
        self._files.prune(folder, MANIFESTS_MAX, spared=self._new)


def _check_trusted(namespace: bytes, distrusted: Container[bytes]) -> None:
    if namespace in distrusted:
        raise CheckpointDropped("The namespace is distrusted until the host starts again.")


def _checked(piece: Piece, payload: Bytes) -> Payload:
    """Check a payload against its piece. Raises CheckpointCorrupt."""
    if payload.nbytes != piece.length or blake3(payload.data).digest() != piece.blake3:
        raise CheckpointCorrupt("a payload has another length or digest than its piece.")
    return piece.stop, piece.lineage, payload
