import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from replica.errors import StoreError
from replica.ids import PublicKey
from replica.io import keys
from replica.io.files import key_text
from replica.io.files.key_refusals import (
    BackupInvalid,
    KeyFileBroken,
    KeyFileGone,
    KeyLinkBroken,
    KeyOfAnotherLog,
    SecretInvalid,
)
from replica.log.entry import public_key
from replica.refusals import ArgumentInvalid, KeyFileInvalid, KeyFileUnchecked
from tests.support.modes import bound_by_modes, mode

CORRECTED_EACH = 7
"""Every such wrong bit is looked for, which takes a millisecond each; all places in bytes occur."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "device.pem"


def write_private(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)


def test_a_key_is_created_once_and_then_read(path: Path) -> None:
    key = keys.load_or_create(path)
    assert public_key(keys.load_or_create(path)) == public_key(key)
    Ed25519PublicKey.from_public_bytes(public_key(key)).verify(key.sign(b"data"), b"data")


def test_a_key_file_is_private_and_leaves_no_temporary_file(path: Path) -> None:
    old = os.umask(0)
    try:
        keys.load_or_create(path)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_processes_that_create_a_key_at_once_get_the_same(path: Path) -> None:
    start = threading.Barrier(8)

    def create(_: int) -> bytes:
        start.wait()
        return public_key(keys.load_or_create(path))

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(create, range(8)))) == 1
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o601])
def test_a_key_file_open_to_others_is_refused(path: Path, mode: int) -> None:
    keys.load_or_create(path)
    path.chmod(mode)
    with pytest.raises(KeyFileInvalid, match="open to group or others"):
        keys.load_or_create(path)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 32, b"antiphon key 1\n-----BEGIN PRIVATE KEY-----\n", b"x" * 99999]
)
def test_a_malformed_key_file_is_refused_and_kept(path: Path, content: bytes) -> None:
    write_private(path, content)
    with pytest.raises(KeyFileInvalid):
        keys.load_or_create(path)
    assert path.read_bytes() == content


def test_what_helps_a_damaged_key_is_named(path: Path) -> None:
    """A wrong bit is corrected by a repair; what a repair can't correct needs the backup."""
    keys.load_or_create(path)
    text = path.read_bytes()
    for damaged, helps in (
        (text.replace(b"public", b"qublic"), "antiphon repair"),
        (text[: len(text) // 2], "antiphon key restore FILE"),
        (text.replace(b"public", b"PUBLIC"), "antiphon key restore FILE"),
        (text[text.index(b"-----") : -40], "antiphon key restore FILE"),
        (b"", "antiphon key restore FILE"),
    ):
        path.write_bytes(damaged)
        is_mended = helps == "antiphon repair"
        with pytest.raises((KeyFileInvalid, KeyFileUnchecked)) as caught:
            keys.load_or_create(path)
        if not isinstance(caught.value, KeyFileUnchecked):
            assert caught.value.reason == KeyFileInvalid.reason
            assert helps in caught.value.next_step
            assert ("one wrong bit" in caught.value.next_step) is is_mended
        if not is_mended:
            with pytest.raises(KeyFileBroken) as still:
                keys.repair(path)
            assert helps in still.value.next_step
            assert path.read_bytes() == damaged


def test_another_kind_of_key_is_refused(path: Path) -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    pem = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_private(path, key_text.encode(PublicKey(bytes(32)), pem))
    with pytest.raises(KeyFileInvalid, match="another kind"):
        keys.load_or_create(path)


@pytest.mark.parametrize("damage", [b"", b"a text", b"cut", b"another kind"])
def test_what_is_no_backup_of_a_key_is_a_damaged_backup(path: Path, damage: bytes) -> None:
    keys.load_or_create(path)
    backup = damage
    if damage == b"cut":
        backup = keys.backup(path, "p")[:50]
    elif damage == b"another kind":
        other = ec.generate_private_key(ec.SECP256R1())
        backup = other.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"p")
        )
    with pytest.raises(BackupInvalid):
        keys.restore(path.with_name("other.key"), backup, "p")


def test_a_pipe_or_folder_instead_of_the_file_is_refused(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path, 0o600)
    with pytest.raises(KeyFileInvalid, match="regular"):
        keys.load_or_create(path)
    path.unlink()
    path.mkdir(mode=0o700)
    with pytest.raises(KeyFileInvalid, match=f"{path} is not a regular file"):
        keys.load_or_create(path)


def test_a_folder_instead_of_the_file_is_set_aside_by_a_restore_and_a_repair(path: Path) -> None:
    mine = public_key(keys.load_or_create(path))
    backup, secret = keys.backup(path, "p"), path.with_name("ticket.secret")
    path.unlink()
    for folder in (path, secret):
        folder.mkdir()
        folder.joinpath("kept").touch()
    assert public_key(keys.restore(path, backup, "p")) == mine
    assert keys.repair_secret(secret)
    assert len(keys.load_or_create_secret(secret)) == 32
    for folder in (path, secret):
        assert folder.with_name(f"{folder.name}.damaged-1").joinpath("kept").exists()


def test_a_backup_restores_the_key_with_its_passphrase_only(path: Path, tmp_path: Path) -> None:
    key = keys.load_or_create(path)
    pem = keys.backup(path, "correct horse")
    assert b"\n-----BEGIN ENCRYPTED PRIVATE KEY-----" in pem
    other = tmp_path / "other" / "device.pem"
    with pytest.raises(KeyFileInvalid, match="passphrase"):
        keys.restore(other, pem, "wrong horse")
    assert not other.exists()
    for _ in range(2):
        assert public_key(keys.restore(other, pem, "correct horse")) == public_key(key)
    assert public_key(keys.load_or_create(other)) == public_key(key)


def test_a_restore_never_replaces_another_key(path: Path, tmp_path: Path) -> None:
    keys.load_or_create(path)
    other = tmp_path / "other.pem"
    mine = public_key(keys.load_or_create(other))
    with pytest.raises(KeyFileInvalid, match="another key"):
        keys.restore(other, keys.backup(path, "p"), "p")
    assert public_key(keys.load_or_create(other)) == mine


def test_a_backup_needs_a_key_and_a_passphrase(path: Path) -> None:
    with pytest.raises(KeyFileInvalid, match="does not exist"):
        keys.backup(path, "p")
    keys.load_or_create(path)
    with pytest.raises(ArgumentInvalid):
        keys.backup(path, "")


def test_an_unencrypted_key_is_not_accepted_as_a_backup(path: Path, tmp_path: Path) -> None:
    keys.load_or_create(path)
    with pytest.raises(BackupInvalid):
        keys.restore(tmp_path / "other.pem", path.read_bytes(), "p")


def test_a_secret_is_created_once_with_its_length(path: Path) -> None:
    secret = keys.load_or_create_secret(path)
    assert len(secret) == 32
    assert len(set(secret)) > 8
    assert keys.load_or_create_secret(path) == secret
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(KeyFileInvalid, match="32 bytes, not 16"):
        keys.load_or_create_secret(path, 16)


def test_a_link_to_no_file_is_refused_with_what_to_do(path: Path) -> None:
    """As of a volume that is not mounted."""
    path.parent.mkdir()
    path.symlink_to(path.with_name("away"))
    for work in (keys.load_or_create_secret, keys.load_or_create):
        with pytest.raises(KeyLinkBroken, match=r"device\.pem is a link") as caught:
            work(path)
        assert "Mount" in caught.value.next_step
    path.unlink()
    assert len(keys.load_or_create_secret(path)) == 32


def test_a_secret_open_to_others_is_refused(path: Path) -> None:
    keys.load_or_create_secret(path)
    path.chmod(0o644)
    for work in (keys.load_or_create_secret, keys.repair_secret):
        with pytest.raises(SecretInvalid) as caught:
            work(path)
        assert "chmod 600" in caught.value.next_step


# --- damage (TRUST-10) ----------------------------------------------------------------------


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_wrong_bit_of_a_key_file_is_noticed_and_can_be_corrected(path: Path) -> None:
    mine = public_key(keys.load_or_create(path))
    sound = path.read_bytes()
    last = 8 * len(sound) - 1
    for bit in range(last + 1):
        with pytest.raises(KeyFileInvalid, match="damaged"):
            key_text.decode(flipped(sound, bit), "it")
    for bit in range(last % CORRECTED_EACH, last + 1, CORRECTED_EACH):
        write_private(path, flipped(sound, bit))
        with pytest.raises(KeyFileInvalid, match="damaged") as caught:
            keys.load_or_create(path)
        assert "antiphon repair" in caught.value.next_step
    assert keys.repair(path)
    assert path.read_bytes() == sound
    assert public_key(keys.load_or_create(path)) == mine
    assert keys.repair(path) == ""


def test_two_wrong_bits_are_not_guessed_at(path: Path) -> None:
    keys.load_or_create(path)
    broken = flipped(flipped(path.read_bytes(), 900), 2000)
    write_private(path, broken)
    with pytest.raises(KeyFileInvalid):
        keys.repair(path)
    assert path.read_bytes() == broken


def test_every_wrong_bit_of_a_backup_is_noticed(path: Path, tmp_path: Path) -> None:
    keys.load_or_create(path)
    backup = keys.backup(path, "p")
    for bit in range(8 * len(backup)):
        with pytest.raises(BackupInvalid):
            keys.restore(tmp_path / "other.key", flipped(backup, bit), "p")
    assert not (tmp_path / "other.key").exists()


def test_a_restore_sets_a_damaged_file_aside(path: Path) -> None:
    mine = public_key(keys.load_or_create(path))
    backup = keys.backup(path, "p")
    write_private(path, b"antiphon")
    assert public_key(keys.restore(path, backup, "p")) == mine
    assert public_key(keys.load_or_create(path)) == mine
    assert path.with_name(f"{path.name}.damaged-1").read_bytes() == b"antiphon"


def test_a_key_without_a_checksum_is_refused_until_it_is_repaired(path: Path) -> None:
    key = keys.load_or_create(path)
    bare = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_private(path, bare)
    with pytest.raises(KeyFileUnchecked) as caught:
        keys.load_or_create(path)
    assert "antiphon repair" in caught.value.next_step
    assert keys.repair(path)
    assert public_key(keys.load_or_create(path)) == public_key(key)


def test_a_replica_s_key_is_made_for_a_new_one_alone(path: Path, tmp_path: Path) -> None:
    store = tmp_path / "log.db"
    mine = public_key(keys.load_or_begin(path, store))
    store.touch()
    assert public_key(keys.load_or_begin(path, store)) == mine
    backup = keys.backup(path, "p")
    path.unlink()
    with pytest.raises(KeyFileGone) as gone:
        keys.load_or_begin(path, store)
    assert "antiphon key restore FILE" in gone.value.next_step
    assert not path.exists()
    keys.restore(path, backup, "p")
    assert public_key(keys.load_or_begin(path, store)) == mine


def test_a_store_that_can_not_be_looked_at_is_a_store_error(path: Path, tmp_path: Path) -> None:
    store = tmp_path / "log" / "log.db"
    store.parent.mkdir()
    keys.load_or_create(path)
    backup = keys.backup(path, "p")
    with bound_by_modes():
        with mode(store.parent, 0), pytest.raises(StoreError, match=str(store)) as caught:
            keys.load_or_begin(path, store)
        assert caught.value.reason == StoreError.reason
        with mode(path.parent, 0):
            for call in (keys.repair_secret, lambda path: keys.restore(path, backup, "p")):
                with pytest.raises(StoreError, match=str(path)) as caught:
                    call(path)
                assert caught.value.reason == StoreError.reason


def test_a_backup_of_another_key_than_the_log_s_is_not_restored(path: Path, tmp_path: Path) -> None:
    mine = public_key(keys.load_or_create(path))
    backup = keys.backup(path, "p")
    other = tmp_path / "other.key"
    with pytest.raises(KeyOfAnotherLog, match="wrote the log here"):
        keys.restore(other, backup, "p", owner=PublicKey(bytes(32)))
    assert not other.exists()
    write_private(other, b"damaged")
    with pytest.raises(KeyOfAnotherLog):
        keys.restore(other, backup, "p", owner=PublicKey(bytes(32)))
    assert other.read_bytes() == b"damaged"
    assert public_key(keys.restore(other, backup, "p", owner=mine)) == mine


def test_the_key_named_in_the_file_is_the_private_key_s(path: Path, tmp_path: Path) -> None:
    keys.load_or_create(path)
    other = keys.load_or_create(tmp_path / "other.key")
    pem = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_private(path, key_text.encode(PublicKey(bytes(32)), pem))
    with pytest.raises(KeyFileInvalid, match="another key"):
        keys.load_or_create(path)


def test_a_backup_from_before_checksums_is_restored(path: Path, tmp_path: Path) -> None:
    key = keys.load_or_create(path)
    bare = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"p"))
    assert public_key(keys.restore(tmp_path / "other.key", bare, "p")) == public_key(key)


def test_a_secret_that_was_cut_off_is_made_anew_after_a_repair(path: Path) -> None:
    keys.load_or_create_secret(path)
    assert not keys.repair_secret(path)
    for content in (b"short", b"", bytes(100_000)):
        write_private(path, content)
        with pytest.raises(SecretInvalid) as caught:
            keys.load_or_create_secret(path)
        assert caught.value.reason == "KEY_FILE_INVALID"
        assert "antiphon repair" in caught.value.next_step
        assert "No backup is needed" in caught.value.next_step
        assert keys.repair_secret(path)
        assert len(keys.load_or_create_secret(path)) == 32
    assert not keys.repair_secret(path.with_name("none"))
