"""The folders of checkpoints, one per conversation: listed, measured, pruned, evicted.

Whoever uses them holds the lock of model_host/io/files/checkpoint_files.py.
"""

import hashlib
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from model_host.disk_reserve import spare_bytes
from model_host.errors import CheckpointCorrupt, CheckpointDiskFull
from model_host.io.files import pack_files
from model_host.io.files.pack_files import NewFiles
from model_host.kv import MANIFEST_BYTES_MAX, Manifest, StoreCounters, decode_manifest
from replica.io import make_folder

log = structlog.get_logger()

Spare = Callable[[Path], int]
"""The bytes that derived files may still take on the disk of a folder. Raises OSError."""

MANIFESTS_MAX = 32
"""Branches and turns of one conversation that stay restorable; the oldest are removed first."""


class ManifestFiles:
    """The manifests of all conversations, and the bytes that each folder uses."""

    def __init__(
        self, root: Path, mac_key: bytes, counters: StoreCounters, spare: Spare | None
    ) -> None:
        """Use the folders below `root`, created private.

        What can't be made or read is logged: then no checkpoint is found, and each write tries
        to make it again.
        """
        self._root = root
        self._mac_key = mac_key
        self._counters = counters
        self._spare = spare or spare_at
        self._written: Path | None = None
        """The folder in which a checkpoint is being written: it makes room for nothing."""
        folders = sorted(_made(root), key=pack_files.last_used_ns)
        self._sizes = OrderedDict((f.name, pack_files.folder_bytes(f)) for f in folders)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all folders."""
        return sum(self._sizes.values())

    def folder(self, conversation: bytes) -> Path:
        """Return the folder of a conversation, which may be missing."""
        return self._root / hashlib.sha256(conversation).hexdigest()

    @contextmanager
    def writing(self, conversation: bytes) -> Iterator[Path]:
        """Make the folder of a conversation, private, and keep it for the block.

        One thread at a time, which holds the lock for no writing. Raises CheckpointWriteFailed.
        """
        self._written = folder = self.folder(conversation)
        try:
            make_folder(folder)  # its parents too: a cache may be deleted at any time
        except OSError as error:
            raise pack_files.write_error(error) from error
        else:
            yield folder
        finally:
            self._written = None

    def load(self, folder: Path) -> tuple[list[tuple[Path, Manifest]], int]:
        """Return the manifests, newest first, and the number of broken ones removed."""
        paths = sorted(pack_files.manifests(folder), key=pack_files.changed_ns, reverse=True)
        found, errors = [], list[str]()
        for path in paths:
            try:
                # One byte more than a manifest may have, so that a longer one is refused as such.
                data = pack_files.read_first(path, MANIFEST_BYTES_MAX + 1)
                found.append((path, decode_manifest(data, self._mac_key)))
            except (CheckpointCorrupt, OSError) as error:
                pack_files.drop(path)
                errors.append(str(error))
        if errors:
            self._counters.corrupt += len(errors)
            log.warning(
                "checkpoints removed", path=str(folder), count=len(errors), detail=errors[0]
            )
        return found, len(errors)

    def measure(self, folder: Path) -> None:
        """Note the bytes of a folder, which was used just now."""
        self._sizes[folder.name] = pack_files.folder_bytes(folder)
        self._sizes.move_to_end(folder.name)

    def evict(self, folder: Path, newest: Path, budget_bytes: int) -> None:
        """Remove unused files, then other conversations, then this one's older checkpoints."""
        self.prune(folder, MANIFESTS_MAX, newest)
        if not self._evict_others(lambda: self.nbytes <= budget_bytes and self._has_spare(0)):
            self.prune(folder, 1, newest)

    def evict_beyond(self, budget_bytes: int) -> None:
        """Remove conversations, the least recently used first, until the rest fits."""
        self._evict_others(lambda: self.nbytes <= budget_bytes)

    def make_room(self, nbytes: int = 0, beside: Path | None = None) -> None:
        """Remove conversations, but for one, until the disk has so much to spare.

        Nothing is removed for bytes that would not fit even then. Raises CheckpointDiskFull.
        """
        others = sum(self._sizes[name] for name in self._removable(beside))
        would_fit = not nbytes or self._has_spare(nbytes - others)
        if not (would_fit and self._evict_others(lambda: self._has_spare(nbytes), beside)):
            raise CheckpointDiskFull(
                f"{nbytes:,} bytes do not fit beside what stays free for the log."
                if nbytes
                else "There are no more checkpoints that could make room."
            )

    def evict_first(self) -> None:
        """Remove the conversation that was not used for longest, if there is one."""
        before = self._counters.evicted_conversations
        self._evict_others(lambda: self._counters.evicted_conversations > before)

    def _evict_others(self, is_enough: Callable[[], bool], beside: Path | None = None) -> bool:
        """Remove conversations, the least recently used first, until it is enough; say if it is."""
        for name in self._removable(beside):
            if is_enough():
                return True
            self.remove(name)
            self._counters.evicted_conversations += 1
        return is_enough()

    def _removable(self, beside: Path | None) -> list[str]:
        """Return what may be removed: neither what is being written, nor one more folder."""
        kept = {folder.name for folder in (self._written, beside) if folder is not None}
        return [name for name in self._sizes if name not in kept]

    def _has_spare(self, nbytes: int) -> bool:
        """Say whether the disk has so much to spare. Raises CheckpointWriteFailed."""
        try:
            return self._spare(self._root) >= nbytes
        except OSError as error:
            raise pack_files.write_error(error) from error

    def prune(
        self, folder: Path, keep: int, newest: Path | None = None, *, spared: NewFiles | None = None
    ) -> None:
        """Remove all but the newest manifests, and the files that none refers to.

        `newest` counts as the newest, whatever the times of the others. Files that are
        being written are spared.
        """
        found, _ = self.load(folder)
        found.sort(key=lambda each: each[0] != newest)
        for path, _ in found[keep:]:
            pack_files.drop(path)
        used = {piece.file for _, manifest in found[:keep] for piece in manifest.pieces}
        for path in pack_files.listed(folder):
            is_new = spared is not None and path in spared
            if path.suffix != ".manifest" and path.name not in used and not is_new:
                pack_files.drop(path)
        self.measure(folder)

    def remove(self, name: str) -> None:
        """Remove a folder."""
        shutil.rmtree(self._root / name, ignore_errors=True)
        self._sizes.pop(name, None)


def spare_at(folder: Path) -> int:
    """Return the bytes that derived files may still take on the disk of a folder. Raises OSError.

    The folder may be missing, or be denied: a cache may be deleted at any time, and a host
    starts without it.
    """
    try:
        usage = shutil.disk_usage(folder)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return spare_at(folder.parent)
    return spare_bytes(usage.total, usage.free)


def manifest_path(folder: Path, manifest: Manifest) -> Path:
    """Return the path of a manifest: one per context."""
    return folder / f"{manifest.tokens:08d}-{manifest.lineage[:8].hex()}.manifest"


def _made(root: Path) -> list[Path]:
    """Make the folder of all conversations; return those that are in it."""
    try:
        make_folder(root)
    except OSError as error:
        log.warning("no checkpoint can be written", path=str(root), detail=str(error))
        return []
    try:
        return [path for path in root.iterdir() if path.is_dir()]
    except OSError as error:
        log.warning("no checkpoint is found", path=str(root), detail=str(error))
        return []
