"""Refusals of a key that is gone, and of restoring one from its backup."""

from replica.refusals import KeyFileInvalid


class KeyFileBroken(KeyFileInvalid):
    """More than one bit of the key file is wrong."""

    next_step = (
        "Restore the backup of the key: `antiphon key restore FILE`, with `--data-dir` for the"
        " folder of a program; it sets this file aside. `antiphon repair` can't correct it."
        " Without a backup, move the folder away, and an owner of each conversation invites the"
        " key of a new one."
    )


class KeyFileGone(KeyFileInvalid):
    """The log here was written with a key whose file is gone."""

    next_step = (
        "Put the file back, or restore its backup: `antiphon key restore FILE`, with `--data-dir`"
        " for the folder of a program. Without a backup, move the folder away, and an owner of"
        " each conversation invites the key of a new one; `antiphon log` still reads the old one."
    )


class HostKeyGone(KeyFileGone):
    """The log of this host was written with a key whose file is gone."""

    next_step = (
        "Put the file back, or restore its backup: `antiphon key restore FILE --data-dir FOLDER`,"
        " with the folder of the host. Without a backup, move `log` out of that folder and start"
        " again: the host begins with a new key, and an owner of each conversation grants it."
    )


class KeyLinkBroken(KeyFileInvalid):
    """The name of the key file is a link to a file that is not there."""

    next_step = (
        "Mount or restore the folder that the link names. Remove the link only if what it named"
        " is not needed any more: the next start makes a new file."
    )


class KeyOfAnotherLog(KeyFileInvalid):
    """The log here was written with another key than that of the backup."""

    next_step = (
        "Restore the backup of the key that is named, or restore this one into another folder"
        " with `--data-dir`."
    )


class SecretInvalid(KeyFileInvalid):
    """A secret has another size than it was made with, or other users can read it."""

    next_step = (
        "Run `antiphon repair --data-dir FOLDER`, which sets the file aside: the next start makes"
        " another secret, and tickets or checkpoints that need it. No backup is needed. Or run"
        " `chmod 600` on the file, where it is open to others."
    )


class KeyFileTaken(KeyFileInvalid):
    """A key that is there is never replaced."""

    reason = "KEY_FILE_TAKEN"
    next_step = "Move that key file away first, or restore into another folder with `--data-dir`."


class BackupInvalid(KeyFileInvalid):
    """A backup is opened by the passphrase it was made with, and by no other."""

    reason = "BACKUP_INVALID"
    next_step = "Type that passphrase; else the file is damaged, and another backup is needed."
