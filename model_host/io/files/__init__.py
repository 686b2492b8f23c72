"""Files of a host: journals, checkpoints, archives, secrets."""

from model_host.io.files.archive_files import (
    append_to_archive,
    prepared_folder,
    store_archive,
    unnamed_file,
    write_archive,
)
from model_host.io.files.checkpoint_files import Checkpoints
from model_host.io.files.journal import Journal, Journals
from model_host.io.files.key_ring import KeyRing

__all__ = [
    "Checkpoints",
    "Journal",
    "Journals",
    "KeyRing",
    "append_to_archive",
    "prepared_folder",
    "store_archive",
    "unnamed_file",
    "write_archive",
]
