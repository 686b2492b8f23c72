"""The folders of checkpoints, one per conversation: listed, measured, pruned, evicted.

Whoever uses them holds the lock of model_host/io/checkpoint_files.py.
"""

import hashlib
import shutil
from collections import OrderedDict
from pathlib import Path

from model_host.errors import CheckpointCorrupt
from model_host.io import pack_files
from model_host.io.pack_files import NewFiles
from model_host.kv import Manifest, StoreCounters, decode_manifest
from replica.io import make_folder

MANIFESTS_MAX = 32
"""Branches and turns of one conversation that stay restorable; the oldest are removed first."""


class ManifestFiles:
    """The manifests of all conversations, and the bytes that each folder uses."""

    def __init__(self, root: Path, mac_key: bytes, counters: StoreCounters) -> None:
        """Use the folders below `root`, created private. Raises CheckpointWriteFailed."""
        self._root = root
        self._mac_key = mac_key
        self._counters = counters
        try:
            make_folder(root)
        except OSError as error:
            raise pack_files.write_error(error) from error
        folders = sorted(
            (p for p in pack_files.listed(root) if p.is_dir()), key=pack_files.last_used_ns
        )
        self._sizes = OrderedDict((f.name, pack_files.folder_bytes(f)) for f in folders)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all folders."""
        return sum(self._sizes.values())

    def folder(self, conversation: bytes) -> Path:
        """Return the folder of a conversation, which may be missing."""
        return self._root / hashlib.sha256(conversation).hexdigest()

    def made(self, conversation: bytes) -> Path:
        """Return the folder of a conversation, created private. Raises CheckpointWriteFailed."""
        folder = self.folder(conversation)
        try:
            make_folder(folder)  # its parents too: a cache may be deleted at any time
        except OSError as error:
            raise pack_files.write_error(error) from error
        return folder

    def load(self, folder: Path) -> tuple[list[tuple[Path, Manifest]], int]:
        """Return the manifests, newest first, and the number of broken ones removed."""
        paths = sorted(pack_files.manifests(folder), key=pack_files.changed_ns, reverse=True)
        found, broken = [], 0
        for path in paths:
            try:
                found.append((path, decode_manifest(pack_files.read_whole(path), self._mac_key)))
            except (CheckpointCorrupt, OSError):
                pack_files.drop(path)
                broken += 1
        self._counters.corrupt += broken
        return found, broken

    def measure(self, folder: Path) -> None:
        """Note the bytes of a folder, which was used just now."""
        self._sizes[folder.name] = pack_files.folder_bytes(folder)
        self._sizes.move_to_end(folder.name)

    def evict(self, folder: Path, newest: Path, budget_bytes: int) -> None:
        """Remove unused files, then other conversations, then this one's older checkpoints."""
        self.prune(folder, MANIFESTS_MAX, newest)
        for name in [name for name in self._sizes if name != folder.name]:
            if self.nbytes <= budget_bytes:
                return
            self.remove(name)
            self._counters.evicted_conversations += 1
        if self.nbytes > budget_bytes:
            self.prune(folder, 1, newest)

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


def manifest_path(folder: Path, manifest: Manifest) -> Path:
    """Return the path of a manifest: one per context."""
    return folder / f"{manifest.tokens:08d}-{manifest.lineage[:8].hex()}.manifest"
