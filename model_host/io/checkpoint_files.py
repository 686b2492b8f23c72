"""Checkpoints on disk: groups in pack files, manifests last (spec/08-checkpoint).

    <root>/<hash of the conversation>/00000000.pack   whole groups of 64 tokens, appended
                                      <n>-<lineage>.tail      the shorter last group
                                      <n>-<lineage>.manifest  written last, renamed into place

Derived state: any file may be deleted at any time. Nothing is used before its length,
digest, MAC and lineage have been checked; a file that fails is removed, and the caller
prefills. Old checkpoints are evicted after the new one is written (DECISIONS D74).
Not thread-safe, and one process per folder.
"""

import errno
import hashlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

import numpy as np
from blake3 import blake3

from model_host.errors import (
    CheckpointCorrupt,
    CheckpointDiskFull,
    CheckpointMissing,
    CheckpointTooLarge,
    CheckpointWriteFailed,
)
from model_host.kv import (
    GROUP_TOKENS,
    Bytes,
    Group,
    Lineage,
    Manifest,
    PageSource,
    PageTarget,
    StoreCounters,
    Stored,
    decode_manifest,
    encode_manifest,
    group_bounds,
    usable_tokens,
)

PACK_BYTES_MAX = 64 << 20
# Branches and turns of one conversation that stay restorable; the oldest are removed first.
MANIFESTS_MAX = 32
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(slots=True)
class _Files:
    """Files written for a checkpoint that has no manifest yet, to be undone on failure."""

    sizes: dict[Path, int] = field(default_factory=dict)

    def undo(self) -> None:
        """Truncate each file to its former size; remove it if it wasn't there."""
        for path, size in self.sizes.items():
            # Files that can't be undone on a failing disk are unreferenced, and pruned later.
            with suppress(OSError):
                if size:
                    os.truncate(path, size)
                else:
                    path.unlink(missing_ok=True)


class Checkpoints:
    """A PageStore (model_host/kv/page_store.py) on disk, which evicts the least recently used."""

    def __init__(self, root: Path, *, mac_key: bytes, budget_bytes: int) -> None:
        """Keep checkpoints below `root`, created private; authenticate with `mac_key`.

        Raises CheckpointDiskFull or CheckpointWriteFailed.
        """
        self._root = root
        self._mac_key = mac_key
        self._budget_bytes = budget_bytes
        self.counters = StoreCounters()
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise _write_error(error) from error
        folders = sorted((p for p in _listed(root) if p.is_dir()), key=_last_used_ns)
        self._sizes = OrderedDict((folder.name, _folder_bytes(folder)) for folder in folders)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all checkpoints on disk."""
        return sum(self._sizes.values())

    def manifests(self, conversation: bytes) -> list[Manifest]:
        """Return a conversation's checkpoints, the newest first; broken ones are removed."""
        return [manifest for _, manifest in self._load(self._folder(conversation))[0]]

    def delete(self, conversation: bytes) -> None:
        """Remove all checkpoints of a conversation."""
        self._remove(self._folder(conversation).name)

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

        Only groups not yet stored for the same lineage are written. Others are evicted once
        this one is complete, so the budget is exceeded meanwhile. Raises CheckpointTooLarge,
        CheckpointDiskFull or CheckpointWriteFailed.
        """
        if not ids:
            return None
        assert len(ids) <= source.tokens, "only positions in memory can be stored"
        folder = self._folder(conversation)
        lineage = Lineage(namespace, ids)
        files = _Files()
        try:
            folder.mkdir(exist_ok=True, mode=0o700)
            known, pack = self._fitting(folder, namespace, lineage, len(ids), source)
            groups = self._write_groups(folder, lineage, len(ids), source, known, pack, files)
            manifest = Manifest(seal, generation, len(ids), lineage.at(len(ids)), namespace, groups)
            path = self._write_manifest(folder, manifest, files)
        except OSError as error:
            files.undo()
            raise _write_error(error) from error
        finally:
            self._measure(folder)
        self._evict(folder, path)
        return manifest

    def _fitting(
        self, folder: Path, namespace: bytes, lineage: Lineage, tokens: int, source: PageSource
    ) -> tuple[dict[bytes, Group], int]:
        """Return the stored groups a checkpoint can extend, and its first pack file.

        If old and new together exceed the budget, it is written whole into files of its own
        beside the old ones, which are removed afterwards. Raises CheckpointTooLarge.
        """
        if tokens * source.bytes_per_token > self._budget_bytes:
            raise CheckpointTooLarge(
                f"The checkpoint takes {tokens * source.bytes_per_token} bytes; "
                f"the host allows {self._budget_bytes}."
            )
        known = self._known(folder, namespace)
        fresh = sum(
            (stop - start) * source.bytes_per_token
            for start, stop in group_bounds(tokens)
            if lineage.at(stop) not in known
        )
        if _folder_bytes(folder) + fresh <= self._budget_bytes:
            return known, 0
        return {}, max((number + 1 for number, _ in _packs(folder)), default=0)

    def _known(self, folder: Path, namespace: bytes) -> dict[bytes, Group]:
        """Return the stored groups of a namespace by their lineage."""
        return {
            group.lineage: group
            for _, manifest in self._load(folder)[0]
            if manifest.namespace == namespace
            for group in manifest.groups
        }

    def _write_groups(
        self,
        folder: Path,
        lineage: Lineage,
        tokens: int,
        source: PageSource,
        known: dict[bytes, Group],
        first_pack: int,
        files: _Files,
    ) -> tuple[Group, ...]:
        """Append the groups that aren't stored yet; return all groups of the checkpoint."""
        groups = []
        for start, stop in group_bounds(tokens):
            key = lineage.at(stop)
            if key in known:
                self.counters.groups_reused += 1
                groups.append(known[key])
                continue
            payload = source.read(start, stop)
            if stop - start == GROUP_TOKENS:
                path = _pack_for(folder, payload.nbytes, first_pack)
            else:
                path = folder / f"{tokens:08d}-{key[:8].hex()}.tail"
            size = path.stat().st_size if path.exists() else 0
            files.sizes.setdefault(path, size)
            with _open(path, "a") as file:
                _write_all(file, payload.data)
            digest = blake3(payload.data).digest()
            groups.append(Group(key, digest, path.name, size, payload.nbytes))
            self.counters.groups_written += 1
        for path in files.sizes:
            with _open(path, "a") as file:
                os.fsync(file.fileno())
        return tuple(groups)

    def _write_manifest(self, folder: Path, manifest: Manifest, files: _Files) -> Path:
        """Write the manifest under another name, fsync, rename, fsync the folder."""
        path = _manifest_path(folder, manifest)
        draft = path.with_suffix(".draft")
        files.sizes[draft] = 0
        with _open(draft, "w") as file:
            _write_all(file, encode_manifest(manifest, self._mac_key))
            os.fsync(file.fileno())
        draft.replace(path)
        files.sizes[path] = 0
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
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
        limit = len(ids) - 1
        lineage = Lineage(namespace, ids[:limit])
        found, broken = self._load(self._folder(conversation))
        usable = [usable_tokens(m, namespace, lineage, limit) for _, m in found]
        tokens = max(usable, default=0)
        if tokens > common:
            return Stored(conversation, found[usable.index(tokens)][1], tokens)
        if broken:
            raise CheckpointCorrupt("A manifest failed its checks and was removed.")
        raise CheckpointMissing

    def load(self, stored: Stored, target: PageTarget) -> None:
        """Read, check and write groups one by one. See PageStore. Raises CheckpointCorrupt.

        One buffer of a group's size stays in the processor's cache from read to copy.
        """
        folder, manifest = self._folder(stored.conversation), stored.manifest
        buffer = np.empty(GROUP_TOKENS * target.bytes_per_token, np.uint8)
        handles: dict[str, FileIO] = {}
        try:
            while target.tokens < stored.tokens:
                index = target.tokens // GROUP_TOKENS
                group, stop = manifest.groups[index], manifest.end_of(index)
                payload = buffer[: (stop - target.tokens) * target.bytes_per_token]
                if group.file not in handles:
                    handles[group.file] = _open(folder / group.file, "r")
                _read_group(handles[group.file], group, payload)
                target.write(stop, payload)
        except (CheckpointCorrupt, OSError) as error:
            self._discard(folder, manifest)
            raise CheckpointCorrupt(f"A checkpoint was removed: {error}") from error
        finally:
            for handle in handles.values():
                handle.close()
        with suppress(OSError):  # a file system that refuses writes can still be read
            os.utime(_manifest_path(folder, manifest))
        self._measure(folder)

    def _discard(self, folder: Path, broken: Manifest) -> None:
        """Remove every checkpoint that shares a group with a broken one."""
        bad = {(group.file, group.offset) for group in broken.groups}
        for path, manifest in self._load(folder)[0]:
            if any((group.file, group.offset) in bad for group in manifest.groups):
                _drop(path)
        self.counters.corrupt += 1
        self._prune(folder, MANIFESTS_MAX)

    # --- eviction ---------------------------------------------------------------

    def _folder(self, conversation: bytes) -> Path:
        return self._root / hashlib.sha256(conversation).hexdigest()

    def _load(self, folder: Path) -> tuple[list[tuple[Path, Manifest]], int]:
        """Return the manifests, newest first, and the number of broken ones removed."""
        paths = sorted(_manifests(folder), key=_changed_ns, reverse=True)
        found, broken = [], 0
        for path in paths:
            try:
                found.append((path, decode_manifest(path.read_bytes(), self._mac_key)))
            except (CheckpointCorrupt, OSError):
                _drop(path)
                broken += 1
        self.counters.corrupt += broken
        return found, broken

    def _evict(self, folder: Path, newest: Path) -> None:
        """Remove unused files, then other conversations, then this one's older checkpoints."""
        self._prune(folder, MANIFESTS_MAX, newest)
        for name in [name for name in self._sizes if name != folder.name]:
            if self.nbytes <= self._budget_bytes:
                return
            self._remove(name)
            self.counters.evicted_conversations += 1
        if self.nbytes > self._budget_bytes:
            self._prune(folder, 1, newest)

    def _prune(self, folder: Path, keep: int, newest: Path | None = None) -> None:
        """Remove all but the newest manifests, and the files that none refers to.

        `newest` counts as the newest, whatever the times of the others.
        """
        found, _ = self._load(folder)
        found.sort(key=lambda each: each[0] != newest)
        for path, _ in found[keep:]:
            _drop(path)
        used = {group.file for _, manifest in found[:keep] for group in manifest.groups}
        for path in _listed(folder):
            if path.suffix != ".manifest" and path.name not in used:
                _drop(path)
        self._measure(folder)

    def _remove(self, name: str) -> None:
        shutil.rmtree(self._root / name, ignore_errors=True)
        self._sizes.pop(name, None)

    def _measure(self, folder: Path) -> None:
        self._sizes[folder.name] = _folder_bytes(folder)
        self._sizes.move_to_end(folder.name)


def _manifest_path(folder: Path, manifest: Manifest) -> Path:
    return folder / f"{manifest.tokens:08d}-{manifest.lineage[:8].hex()}.manifest"


def _write_error(error: OSError) -> CheckpointWriteFailed:
    """Return the typed error behind a failed write."""
    kind = CheckpointDiskFull if error.errno in _FULL else CheckpointWriteFailed
    return kind(f"Writing a checkpoint failed: {error.strerror}.")


def _drop(path: Path) -> None:
    """Remove a file; if the file system refuses, it is found broken again later."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _packs(folder: Path) -> list[tuple[int, Path]]:
    """Return the pack files with their numbers, the last one last."""
    named = (p for p in _listed(folder) if p.suffix == ".pack")
    return sorted((int(p.stem), p) for p in named if p.stem.isascii() and p.stem.isdecimal())


def _pack_for(folder: Path, size: int, first: int) -> Path:
    """Return the pack file to append `size` bytes to, numbered `first` or later."""
    number, path = max(_packs(folder), default=(-1, folder))
    if number >= first and path.stat().st_size + size <= PACK_BYTES_MAX:
        return path
    return folder / f"{max(first, number + 1):08d}.pack"


def _open(path: Path, mode: str) -> FileIO:
    """Open an unbuffered file, private if it is new."""
    return FileIO(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def _write_all(file: FileIO, data: bytes | memoryview) -> None:
    """Write all bytes; one call may write only a part."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


def _read_group(file: FileIO, group: Group, payload: Bytes) -> None:
    """Fill `payload` with a group's bytes and check them. Raises CheckpointCorrupt."""
    if group.length != payload.nbytes:
        raise CheckpointCorrupt("a group has another length than its tokens have.")
    file.seek(group.offset)
    view, at = payload.data, 0
    while at < group.length:
        count = file.readinto(view[at:])
        if not count:
            raise CheckpointCorrupt("a file ends inside a group.")
        at += count
    if blake3(payload.data).digest() != group.blake3:
        raise CheckpointCorrupt("a group's bytes aren't those that were written.")


# Anyone may delete or add files at any time, and disks fail. A file that can't be examined
# counts as absent here, and is found broken when it is read.


def _listed(folder: Path) -> list[Path]:
    """Return the paths in a folder."""
    with suppress(OSError):
        return list(folder.iterdir())
    return []


def _manifests(folder: Path) -> list[Path]:
    return [path for path in _listed(folder) if path.suffix == ".manifest"]


def _changed_ns(path: Path) -> int:
    """Return the time in ns at which a file was last written or, for a manifest, restored from."""
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def _folder_bytes(folder: Path) -> int:
    total = 0
    for path in _listed(folder):
        with suppress(OSError):
            total += path.stat().st_size
    return total


def _last_used_ns(folder: Path) -> int:
    """Return the time in ns at which a checkpoint of the folder was last written or restored."""
    return max(map(_changed_ns, _manifests(folder)), default=0)
