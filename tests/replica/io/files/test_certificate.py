"""A hub's certificate: private, kept over restarts, replaced in time (spec/09-trust §2)."""

import os
import ssl
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from replica.errors import StoreError
from replica.io.files import certificate
from replica.io.files.certificate import CertificateFile, make_certificate

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_certificate_is_private_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "hub" / "certificate.pem"
    made = CertificateFile(path).current
    assert path.stat().st_mode & 0o777 == 0o600
    assert CertificateFile(path).current == made
    der = ssl.PEM_cert_to_DER_cert(made.certificate_pem.decode())
    assert sha256(der).digest() == made.digest


def test_a_certificate_is_renewed_before_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "certificate.pem"
    file = CertificateFile(path)
    before = file.current
    assert not file.renew_if_due(before.end - timedelta(days=61))
    assert file.current == before
    assert file.renew_if_due(before.end - timedelta(days=59))
    assert file.current.digest != before.digest
    assert path.read_bytes() == file.current.key_pem + file.current.certificate_pem


def test_an_old_certificate_is_replaced_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "certificate.pem"
    old = make_certificate(datetime.now(UTC) - timedelta(days=390))
    path.write_bytes(old.key_pem + old.certificate_pem)
    path.chmod(0o600)
    assert CertificateFile(path).current.digest != old.digest


def test_a_certificate_of_a_clock_that_was_ahead_is_replaced(tmp_path: Path) -> None:
    """Clients would refuse it until its begin, as not yet valid."""
    path = tmp_path / "certificate.pem"
    ahead = make_certificate(datetime.now(UTC) + timedelta(days=60))
    path.write_bytes(ahead.key_pem + ahead.certificate_pem)
    path.chmod(0o600)
    file = CertificateFile(path)
    assert file.current.digest != ahead.digest
    assert not file.renew_if_due(file.current.begin)
    assert file.renew_if_due(file.current.begin - timedelta(seconds=1))


@pytest.mark.parametrize("harm", ["bit", "cut", "open", "mixed"])
def test_a_file_that_can_not_be_used_is_replaced(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "certificate.pem"
    first = CertificateFile(path).current
    text = path.read_bytes()
    if harm == "bit":
        path.write_bytes(text[:60] + bytes([text[60] ^ 1]) + text[61:])
    elif harm == "cut":
        path.write_bytes(text[:100])
    elif harm == "mixed":
        path.write_bytes(make_certificate(NOW).key_pem + first.certificate_pem)
    else:
        path.chmod(0o644)
    second = CertificateFile(path).current
    assert second.digest != first.digest
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_certificate_with_another_name_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that an operator made for the machine's name: no client would accept it."""
    path = tmp_path / "certificate.pem"
    with monkeypatch.context() as patch:
        patch.setattr(certificate, "TLS_NAME", "hub.example.com")
        other = CertificateFile(path).current
    assert CertificateFile(path).current.digest != other.digest


def test_no_flipped_bit_makes_a_hub_serve_what_clients_refuse(tmp_path: Path) -> None:
    """A wrong private key and a wrong version are read without an error, as is a wrong name."""
    path = tmp_path / "certificate.pem"
    sound = CertificateFile(path).current
    text = path.read_bytes()
    version = text.index(b"BEGIN CERTIFICATE") + 30  # in the first line, behind the lengths
    for at in (*range(40, len(text), 23), *range(version, version + 10)):
        for mask in (1, 16):
            path.write_bytes(text[:at] + bytes([text[at] ^ mask]) + text[at + 1 :])
            found = CertificateFile(path).current
            is_new = found.digest != sound.digest and found.certificate_pem in path.read_bytes()
            assert found == sound or (is_new and CertificateFile(path).current == found), at


def test_a_pipe_in_its_place_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "certificate.pem"
    os.mkfifo(path)
    with pytest.raises(StoreError, match=f"^{path} is not a regular file$"):
        CertificateFile(path)
