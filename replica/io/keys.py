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

from replica.ids import short
from replica.io import key_text
from replica.io.disk import create, set_aside, typed_errors
from replica.io.key_refusals import BackupInvalid, KeyFileGone, KeyFileTaken
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
    Raises KeyFileInvalid, KeyFileUnchecked, or StoreError if the disk refuses.
    """
    existing = _read(path)
    if existing is None:
        existing = _create(path, _to_text(Ed25519PrivateKey.generate(), NoEncryption()))
    return _from_text(existing, None, str(path))


def load_or_begin(path: Path, store: Path) -> Ed25519PrivateKey:
    """Read the key file of a replica, or create it for one that has no store yet.

    A store without its key is another identity's: with a fresh key nothing in it could go on,
    and the old key could not be restored in its place. Raises KeyFileGone, and what
    `load_or_create` raises.
    """
    # The store is looked at first: another process that begins the replica makes the key first.
    if store.is_file() and not path.exists():
        raise KeyFileGone(f"{path} is gone; {store} was written with its key")
    return load_or_create(path)


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
    return _to_text(_from_text(existing, None, str(path)), encryption)


def restore(path: Path, backup_text: bytes, passphrase: str) -> Ed25519PrivateKey:
    """Write the key of a backup to `path`; another key there is never replaced.

    A damaged file is set aside. Raises BackupInvalid if the passphrase or the backup is wrong,
    and KeyFileTaken if the file holds another key.
    """
    key = _from_backup(backup_text, _passphrase(passphrase))
    _set_aside_if_no_file(path)
    existing, held = _read(path), None
    if existing is not None:
        try:
            held = _from_text(existing, None, str(path))
        except (KeyFileInvalid, KeyFileUnchecked):
            set_aside(path)
    if held is None:
        _create(path, _to_text(key, NoEncryption()))
    elif public_key(held) != public_key(key):
        raise KeyFileTaken(f"{path} holds another key, {short(public_key(held))}")
    return key


def repair(path: Path) -> str:
    """Correct a key file with one wrong bit, or add its checksum; return what was done.

    Returns an empty text if nothing had to be done. The file as it was is set
    aside. Raises KeyFileInvalid if the key can't be told.
    """
    existing = _read(path)
    if existing is None:
        return ""
    try:
        _from_text(existing, None, str(path))
    except KeyFileUnchecked:
        key, done = _from_pem(existing, None, str(path)), "has a checksum now"
    except KeyFileInvalid:
        text = key_text.mended(existing)
        if text is None:
            raise
        key, done = _from_text(text, None, str(path)), "had one wrong bit, which is corrected"
    else:
        return ""
    set_aside(path)
    _create(path, _to_text(key, NoEncryption()))
    return done


def load_or_create_secret(path: Path, n_bytes: int = SECRET_BYTES) -> bytes:
    """Read a file of exactly `n_bytes` random bytes, or create it.

    Used for MAC keys and salts. Raises KeyFileInvalid or StoreError.
    """
    secret = _read(path)
    if secret is None:
        secret = _create(path, secrets.token_bytes(n_bytes))
    if len(secret) != n_bytes:
        raise KeyFileInvalid(f"{path} has {len(secret)} bytes, not {n_bytes}")
    return secret


def repair_secret(path: Path, n_bytes: int = SECRET_BYTES) -> bool:
    """Set a secret of a wrong size aside, so that the next start makes another; say whether."""
    if _set_aside_if_no_file(path):
        return True
    secret = _read(path)
    if secret is None or len(secret) == n_bytes:
        return False
    set_aside(path)
    return True


def _read(path: Path) -> bytes | None:
    """Return the content of a private file; None if there is no file."""
    with typed_errors():
        try:
            # O_NONBLOCK, so that a pipe instead of the file is refused without waiting.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        try:
            # Before a file is made of it, which a folder refuses with the descriptor's number.
            _require_private(path, os.fstat(descriptor))
            with open(descriptor, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(descriptor)


def _require_private(path: Path, state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise KeyFileInvalid(f"{path} is not a regular file")
    if state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileInvalid(f"{path} is open to group or others")
    if state.st_size > _FILE_BYTES_MAX:
        raise KeyFileInvalid(f"{path} has {state.st_size} bytes")


def _set_aside_if_no_file(path: Path) -> bool:
    """Rename what has a key file's name and is no file, such as a folder; say whether."""
    if not path.exists() or path.is_file():
        return False
    with typed_errors():
        set_aside(path)
    return True


def _create(path: Path, content: bytes) -> bytes:
    """Create a private file; return its content, which another process may have won."""
    with typed_errors():
        if create(path, content):
            return content
    first = _read(path)
    assert first is not None, "key files are not deleted while in use"
    return first


def _to_text(key: Ed25519PrivateKey, encryption: KeySerializationEncryption) -> bytes:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return key_text.encode(public_key(key), pem)


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
