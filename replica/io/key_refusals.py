"""Refusals of restoring a key from its backup."""

from replica.refusals import KeyFileInvalid


class KeyFileTaken(KeyFileInvalid):
    """A key that is there is never replaced."""

    reason = "KEY_FILE_TAKEN"
    next_step = "Move that key file away first, or restore into another folder with `--data-dir`."


class BackupInvalid(KeyFileInvalid):
    """A backup is opened by the passphrase it was made with, and by no other."""

    reason = "BACKUP_INVALID"
    next_step = "Type that passphrase; else the file is damaged, and another backup is needed."
