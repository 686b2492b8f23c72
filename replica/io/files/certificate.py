"""The TLS certificate of a hub: made here, stored in its folder, renewed (spec/09-trust §2).

No authority signs it. The hub's Ed25519 key signs its digest in every
Authenticate transcript, and clients check that (DECISIONS D273). It is an ECDSA
certificate, since gRPC can't serve Ed25519 ones.
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from replica.io.files.disk import make_folder, read_regular, replacing, typed_errors
from replica.io.process import get_logger

log = get_logger()

TLS_NAME = "antiphon"
"""The name in every hub's certificate; a hub is told by its key, not by its host name."""
LIFETIME = timedelta(days=397)
RENEWED_BEFORE_END = timedelta(days=60)
_CLOCK_SKEW = timedelta(days=1)
_BYTES_MAX = 16 * 1024


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key, as PEM."""

    certificate_pem: bytes
    key_pem: bytes
    digest: bytes
    """SHA-256 of the certificate in DER form, 32 bytes."""
    begin: datetime
    end: datetime

    def is_due(self, now: datetime) -> bool:
        """Say whether it is time for another certificate.

        So it is before its begin: it was made when the clock was ahead, and clients refuse it.
        """
        return not self.begin <= now < self.end - RENEWED_BEFORE_END


class CertificateFile:
    """A hub's certificate, kept in a private file and replaced before it ends."""

    def __init__(self, path: Path) -> None:
        """Read the certificate in `path`, or make one. Raises StoreError."""
        self._path = path
        self.current = _read(path) or self._make(datetime.now(UTC))
        self.renew_if_due(datetime.now(UTC))

    def renew_if_due(self, now: datetime) -> bool:
        """Make another certificate if this one ends soon; say whether. Raises StoreError.

        Connections go on. Clients that authenticate again on an old one are refused
        by their own check, and connect anew.
        """
        if not self.current.is_due(now):
            return False
        self.current = self._make(now)
        return True

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials for one port: each new connection sees the current certificate."""
        offered = self.current

        def changed() -> Any:  # a configuration, or None to go on; gRPC's stubs omit the None
            nonlocal offered
            if offered is self.current:
                return None
            offered = self.current
            return _configuration(offered)

        return grpc.dynamic_ssl_server_credentials(_configuration(offered), changed)

    def _make(self, now: datetime) -> Certificate:
        made = make_certificate(now)
        with typed_errors():
            make_folder(self._path.parent)
            with replacing(self._path) as file:
                file.write(made.key_pem + made.certificate_pem)
        log.info("certificate made", path=str(self._path))
        return made


def make_certificate(now: datetime) -> Certificate:
    """Return a new self-signed certificate of a new ECDSA key, valid from a day before `now`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, TLS_NAME)])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(TLS_NAME)]), critical=False)
        # It signs no other certificate, so a client that trusts it trusts this key alone.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return _certificate(signed, key_pem)


def _certificate(signed: x509.Certificate, key_pem: bytes) -> Certificate:
    digest = hashlib.sha256(signed.public_bytes(Encoding.DER)).digest()
    begin, end = signed.not_valid_before_utc, signed.not_valid_after_utc
    return Certificate(signed.public_bytes(Encoding.PEM), key_pem, digest, begin, end)


def _read(path: Path) -> Certificate | None:
    """Return the stored certificate; None if there is none that can be used."""
    with typed_errors():
        try:
            text = read_regular(path, _BYTES_MAX)
        except FileNotFoundError:
            return None
        is_private = path.stat().st_mode & 0o077 == 0
    try:
        key = load_pem_private_key(text, None)
        signed = x509.load_pem_x509_certificate(text)
        is_sound = _is_sound(key, signed)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        is_sound = False
    if not is_sound or not is_private:
        # Another one is as good: the hub's identity is not in this file.
        log.warning("certificate damaged or open to others, and replaced", path=str(path))
        return None
    return _certificate(
        signed, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )


def _is_sound(key: PrivateKeyTypes, signed: x509.Certificate) -> bool:
    """Say whether each bit of a key and its certificate is as it was made.

    Both are read without a check of their own: the key proves itself by a signature, and so
    does the certificate, which the key has signed. Clients look for the name, which a certificate
    that an operator made lacks. Raises ValueError, TypeError.
    """
    public = signed.public_key()
    if (
        TLS_NAME not in _names_in(signed)
        or not isinstance(key, ec.EllipticCurvePrivateKey)
        or key.public_key() != public
    ):
        return False
    assert isinstance(public, ec.EllipticCurvePublicKey), "it equals one"
    try:
        public.verify(key.sign(b"", ec.ECDSA(SHA256())), b"", ec.ECDSA(SHA256()))
        signed.verify_directly_issued_by(signed)
    except InvalidSignature:
        return False
    return True


def _names_in(signed: x509.Certificate) -> list[str]:
    try:
        found = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return found.value.get_values_for_type(x509.DNSName)


def _configuration(certificate: Certificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificate.key_pem, certificate.certificate_pem)]
    )
