"""The folder of one conversation's blobs: whether the names in it survive a power failure."""

from pathlib import Path

from replica.io.files import sync_folder


class BlobFolder:
    """A folder of blobs; its work waits for the disk and is done in threads."""

    def __init__(self, path: Path) -> None:
        """Take the folder, which need not exist yet; a process before may have left its names."""
        self._path = path
        self._is_named = False
        """Whether its own name, and that of the folder it is in, are durable."""
        self.is_synced = False
        """Whether the last sync succeeded; false before the first one."""

    def sync(self) -> None:
        """Make the names in the folder durable, and at the first time its own. Raises OSError."""
        try:
            sync_folder(self._path)
            if not self._is_named:
                # Whoever made them may have been killed before these syncs.
                sync_folder(self._path.parent)
                sync_folder(self._path.parent.parent)
                self._is_named = True
        except BaseException:
            self.is_synced = False
            raise
        self.is_synced = True
