"""Key files: Ed25519 identities and the secrets beside them.

A key is unencrypted PEM (PKCS#8) that only its owner may read, with a checksum
(key_text.py). Only backups have a passphrase, since a daemon starts without a
person to type one. Losing the file loses the identity, which no peer can restore.
The secrets have no checksum: a wrong bit makes another random secret, which costs
tickets or derived state, and both are made again.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from replica.ids import PublicKey, short
from replica.io.files import key_text
from replica.io.files.disk import NotRegular, create, open_regular, set_aside, typed_errors
from replica.io.files.key_refusals import (
    BackupInvalid,
    HostKeyGone,
    KeyFileBroken,
    KeyFileGone,
    KeyFileTaken,
    KeyLinkBroken,
    KeyOfAnotherLog,
    SecretInvalid,
)
from replica.log import public_key
from replica.refusals import (
    ArgumentInvalid,
    KeyFileInvalid,
    KeyFileUnchecked,
)

SECRET_BYTES = 32
_FILE_BYTES_MAX = 16 * 1024


def load_or_create(path: Path) -> Ed25519PrivateKey:
    """Read the key file, or create it with a fresh key.

    If several processes create it at the same time, all get the same key.
    Raises KeyFileInvalid, KeyFileBroken, KeyFileUnchecked, or StoreError if the disk refuses.
    """
    existing = _read(path)
    if existing is None:
        existing = _create(path, _to_text(Ed25519PrivateKey.generate(), NoEncryption()))
    return _from_file(existing, path)


def load_or_begin(path: Path, store: Path, *, is_host: bool = False) -> Ed25519PrivateKey:
    """Read the key file of a replica or a host, or create it for one that has no store yet.

    Raises KeyFileGone, for a host HostKeyGone, and what `load_or_create` raises.
    """
    require_not_gone(path, store, is_host=is_host)
    return load_or_create(path)


def require_not_gone(path: Path, store: Path, *, is_host: bool = False) -> None:
    """Raise KeyFileGone where there is a store and not the key it was written with.

    Such a store is another identity's: with a fresh key nothing in it could go on, and the old
    key could not be restored in its place. Raises StoreError if that can't be told.
    """
    with typed_errors():
        # The store is looked at first: another process that begins the replica makes the key first.
        is_gone = store.is_file() and not path.exists()
    if is_gone:
        kind = HostKeyGone if is_host else KeyFileGone
        raise kind(f"{path} is gone; {store} was written with its key")


def backup(path: Path, passphrase: str) -> bytes:
    """Return the key of the file as a key file encrypted with `passphrase`.

    The format uses 2,048 rounds of PBKDF2, which makes guesses cheap: choose a
    long passphrase. Raises KeyFileInvalid, KeyFileUnchecked or
    ArgumentInvalid.
    """
    existing = _read(path)
    if existing is None:
        raise KeyFileInvalid(f"{path} does not exist")
    encryption = BestAvailableEncryption(_passphrase(passphrase))
    return _to_text(_from_file(existing, path), encryption)


def restore(
    path: Path, backup_text: bytes, passphrase: str, *, owner: PublicKey | None = None
) -> Ed25519PrivateKey:
    """Write the key of a backup to `path`; another key there is never replaced.

    `owner` is the key that the log beside it was written with, None where that is not known.
    A damaged file is set aside. Raises BackupInvalid if the passphrase or the backup is wrong,
    KeyOfAnotherLog if it is not the owner's, and KeyFileTaken if the file holds another key.
    """
    key = _from_backup(backup_text, _passphrase(passphrase))
    with typed_errors():
        existing, held = _read(path) if path.is_file() else None, None
    if existing is not None:
        with suppress(KeyFileInvalid, KeyFileUnchecked):
            held = public_key(_from_text(existing, None, str(path)))
    if held == public_key(key):
        return key
    if held is not None:
        raise KeyFileTaken(f"{path} holds another key, {short(held)}")
    if owner not in (None, public_key(key)):
        theirs, ours = short(public_key(key)), short(owner or b"")
        raise KeyOfAnotherLog(f"the backup holds the key {theirs}, and {ours} wrote the log here")
    if not _set_aside_if_no_file(path) and existing is not None:
        set_aside(path)
    _create(path, _to_text(key, NoEncryption()))
    return key


def repair(path: Path) -> str:
    """Correct a key file with one wrong bit, or add its checksum; return what was done.

    Returns an empty text if nothing had to be done. The file as it was is set
    aside. Raises KeyFileBroken if the key can't be told.
    """
    existing = _read(path)
    if existing is None:
        return ""
    try:
        _from_file(existing, path)
    except KeyFileUnchecked:
        key, done = _from_bare(existing, path), "has a checksum now"
    except KeyFileBroken:
        raise
    except KeyFileInvalid:
        text = key_text.mended(existing)
        assert text is not None, "else the file is broken"
        key, done = _from_text(text, None, str(path)), "had one wrong bit, which is corrected"
    else:
        return ""
    set_aside(path)
    _create(path, _to_text(key, NoEncryption()))
    return done


def load_or_create_secret(path: Path, n_bytes: int = SECRET_BYTES) -> bytes:
    """Read a file of exactly `n_bytes` random bytes, or create it.

    Used for MAC keys and salts. Raises SecretInvalid or StoreError.
    """
    secret = _read_secret(path)
    if secret is None:
        secret = _create(path, secrets.token_bytes(n_bytes))
    if len(secret) != n_bytes:
        raise SecretInvalid(f"{path} has {len(secret)} bytes, not {n_bytes}")
    return secret


def repair_secret(path: Path, n_bytes: int = SECRET_BYTES) -> bool:
    """Set a secret of a wrong size aside, so that the next start makes another; say whether.

    Raises SecretInvalid for one of the right size that is open to others.
    """
    if _set_aside_if_no_file(path):
        return True
    with typed_errors():
        if not path.exists():
            return False
        if path.stat().st_size == n_bytes:
            _read_secret(path)
            return False
        set_aside(path)
    return True


def _read(path: Path) -> bytes | None:
    """Return the content of a private file; None if there is no file."""
    with typed_errors():
        try:
            descriptor = open_regular(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except NotRegular as error:
            raise KeyFileInvalid(str(error)) from error
        with os.fdopen(descriptor, "rb") as file:
            _require_private(path, os.fstat(descriptor))
            return file.read()


def _read_secret(path: Path) -> bytes | None:
    try:
        return _read(path)
    except KeyFileInvalid as error:
        raise SecretInvalid(error.detail) from error


def _require_private(path: Path, state: os.stat_result) -> None:
    if state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileInvalid(f"{path} is open to group or others")
    if state.st_size > _FILE_BYTES_MAX:
        raise KeyFileInvalid(f"{path} has {state.st_size} bytes")


def _set_aside_if_no_file(path: Path) -> bool:
    """Rename what has a key file's name and is no file, such as a folder; say whether."""
    with typed_errors():
        if not path.exists() or path.is_file():
            return False
        set_aside(path)
    return True


def _create(path: Path, content: bytes) -> bytes:
    """Create a private file; return its content, which another process may have won.

    Raises KeyLinkBroken, or StoreError.
    """
    with typed_errors():
        if create(path, content):
            return content
    first = _read(path)
    if first is None:
        raise KeyLinkBroken(f"{path} is a link, and the file that it names is not there")
    return first


def _to_text(key: Ed25519PrivateKey, encryption: KeySerializationEncryption) -> bytes:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return key_text.encode(public_key(key), pem)


def _from_file(text: bytes, path: Path) -> Ed25519PrivateKey:
    """Return the key of a file. Raises KeyFileUnchecked, KeyFileInvalid, KeyFileBroken."""
    try:
        return _from_text(text, None, str(path))
    except KeyFileInvalid as error:
        if key_text.mended(text) is None:
            raise KeyFileBroken(error.detail) from error
        raise


def _from_bare(text: bytes, path: Path) -> Ed25519PrivateKey:
    """Return the key of a file without its checksum. Raises KeyFileBroken."""
    try:
        return _from_pem(text, None, str(path))
    except KeyFileInvalid as error:
        raise KeyFileBroken(error.detail) from error


def _from_text(text: bytes, passphrase: bytes | None, what: str) -> Ed25519PrivateKey:
    named, pem = key_text.decode(text, what)
    key = _from_pem(pem, passphrase, what)
    if public_key(key) != named:
        raise KeyFileInvalid(f"{what} holds another key than the one it names")
    return key


def _from_backup(text: bytes, passphrase: bytes) -> Ed25519PrivateKey:
    try:
        try:
            return _from_text(text, passphrase, "the backup")
        except KeyFileUnchecked:
            # Made before there were checksums; the caller shows the key, to be compared.
            return _from_pem(text, passphrase, "the backup")
    except BackupInvalid:
        raise
    except KeyFileInvalid as error:
        raise BackupInvalid(error.detail) from error


def _from_pem(data: bytes, passphrase: bytes | None, what: str) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(data, passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if passphrase is not None:
            raise BackupInvalid(f"{what} or its passphrase is wrong") from error
        raise KeyFileInvalid(f"{what} is not a key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileInvalid(f"{what} holds another kind of key than Ed25519")
    return key


def _passphrase(text: str) -> bytes:
    if not text:
        raise ArgumentInvalid("the passphrase is empty")
    return text.encode()
