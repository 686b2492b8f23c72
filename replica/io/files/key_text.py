"""The text of a key file: a private key as PEM, below its public half and a checksum.

    antiphon key 1
    public 5b1c…                      64 hex digits
    sha256 a9e0…                      of the line above and of the PEM
    -----BEGIN PRIVATE KEY-----
    …

Most single-bit errors in a bare PEM file give another valid key, which signs in
the name of nobody. Here each of them is noticed, and can be undone (TRUST-10).
"""

import hashlib
import re

from replica.ids import PublicKey
from replica.refusals import KeyFileInvalid, KeyFileUnchecked

_FORM = re.compile(
    rb"antiphon key 1\n(public ([0-9a-f]{64})\n)sha256 ([0-9a-f]{64})\n(-----BEGIN .*)",
    re.DOTALL,
)


def encode(public: PublicKey, pem: bytes) -> bytes:
    """Return the text of a key file."""
    named = b"public %s\n" % public.hex().encode()
    return b"antiphon key 1\n%ssha256 %s\n%s" % (named, _checksum(named, pem), pem)


def decode(text: bytes, what: str) -> tuple[PublicKey, bytes]:
    """Return the public key and the PEM of a key file; `what` names the file in errors.

    Raises KeyFileInvalid, or KeyFileUnchecked for a PEM without the lines above it.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        if text.startswith(b"-----BEGIN "):
            raise KeyFileUnchecked(f"{what} is a key without its checksum")
        raise KeyFileInvalid(f"{what} is not a key file, or is damaged")
    named, public, checksum, pem = match.groups()
    if checksum != _checksum(named, pem):
        raise KeyFileInvalid(f"{what} is damaged: it does not have its checksum")
    return PublicKey(bytes.fromhex(public.decode())), pem


def mended(text: bytes) -> bytes | None:
    """Return the text without its only wrong bit; None if more is wrong."""
    for bit in range(8 * len(text)):
        tried = bytearray(text)
        tried[bit // 8] ^= 1 << bit % 8
        match = _FORM.fullmatch(tried)
        if match is not None and match[3] == _checksum(match[1], match[4]):
            return bytes(tried)
    return None


def _checksum(named: bytes, pem: bytes) -> bytes:
    return hashlib.sha256(named + pem).hexdigest().encode()
