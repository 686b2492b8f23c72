"""What a data folder is used for: by a replica, a hub or a model host (DECISIONS D471).

All three keep a key and a log in the same files. Each use is noted in the folder at its first
start, so that no other program takes the folder for its own. A folder from before there were
notes is told by what is in it.
"""

import shlex
from enum import StrEnum
from pathlib import Path

from replica.errors import StoreError, with_step
from replica.io.files import create, keys, read_regular, replacing, typed_errors
from replica.io.store import schema
from replica.io.store.small_rows import HUB_KEY
from replica.log import public_key
from replica.refusals import StoreReadOnly

FILE = "folder.use"
HUB_FILE = "hub.address"
"""File of a replica's folder that names the hub where it joined."""
_BYTES_MAX = 64
_OF_A_HOST = ("derived", "journal", "salt.secret")
_OF_A_DAEMON = ("ticket.secret", "certificate.pem")
_IS_A_REPLICA_S = """
SELECT 1 FROM meta WHERE instr(CAST(key AS TEXT), ?) = 1
UNION ALL SELECT 1 FROM entries WHERE instr(header, ?) LIMIT 1
"""
"""Only a replica pins keys of hubs, and writes entries of its own key."""


class FolderUse(StrEnum):
    """The programs that have a data folder."""

    REPLICA = "replica"
    HUB = "hub"
    HOST = "host"


class FolderTaken(StoreError):
    """A replica, a hub and a model host each need a data folder of their own."""

    reason = "FOLDER_TAKEN"
    next_step = "Give another folder."


async def take_folder(folder: Path, use: FolderUse, *others: FolderUse) -> None:
    """Note that a folder is used so; do nothing if it is, or is used as one of `others`.

    Called before anything else is written there. Raises FolderTaken and other StoreErrors.
    """
    stated = _stated(folder)
    found = stated or await _inferred(folder) or use
    if stated is None:
        found = _state(folder, found)
    if found not in (use, *others):
        raise _taken(folder, found, use)


def _taken(folder: Path, use: FolderUse, wanted: FolderUse) -> FolderTaken:
    """Return the refusal of a folder, which names another one."""
    error = FolderTaken(f"{folder} is the folder of a {use}, and can't be that of a {wanted}")
    other = shlex.quote(str(folder.with_name(f"{folder.name}-{wanted}")))
    return with_step(error, f"Give another folder, such as `--data-dir {other}`.")


async def use_of(folder: Path) -> FolderUse | None:
    """Return what a folder is used for, None for a new one. Raises StoreError."""
    return _stated(folder) or await _inferred(folder)


def _stated(folder: Path) -> FolderUse | None:
    """Return the use that is noted; None if there is no note, or one that says something else."""
    with typed_errors():
        try:
            text = read_regular(folder / FILE, _BYTES_MAX)
            return FolderUse(text.decode(errors="replace").strip())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None


def _state(folder: Path, use: FolderUse) -> FolderUse:
    """Note a use; return it, or the one that another process has noted meanwhile."""
    path, text = folder / FILE, f"{use}\n".encode()
    with typed_errors():
        try:
            if not create(path, text) and _stated(folder) is None:
                with replacing(path) as file:
                    file.write(text)
        except PermissionError as error:
            raise StoreReadOnly(f"{folder} can't be written") from error
        except (FileExistsError, NotADirectoryError) as error:
            raise with_step(StoreError(f"{folder} is no folder"), FolderTaken.next_step) from error
    return _stated(folder) or use


async def _inferred(folder: Path) -> FolderUse | None:
    with typed_errors():
        if any((folder / name).exists() for name in _OF_A_HOST):
            return FolderUse.HOST
        if (folder / HUB_FILE).exists() or await _is_a_replica_s(folder):
            return FolderUse.REPLICA
        is_a_hub_s = any((folder / name).exists() for name in _OF_A_DAEMON)
    return FolderUse.HUB if is_a_hub_s else None


async def _is_a_replica_s(folder: Path) -> bool:
    """Say whether the log is one that a replica wrote. Raises StoreError."""
    log, identity = folder / "log" / "log.db", folder / "identity.key"
    if not log.exists() or not identity.exists():
        return False
    public = public_key(keys.load_or_create(identity))
    with typed_errors():
        reader = await schema.connect_checked(log)
        if reader is None:
            return False  # its first opening was cut short
        try:
            return bool(await reader.execute_fetchall(_IS_A_REPLICA_S, (HUB_KEY, public)))
        finally:
            await reader.close()
