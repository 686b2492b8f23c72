"""Ed25519 signatures, by rules that libraries disagree on (spec/02-entry §4).

Cofactorless, S < L, canonical and large-order A and R. libsodium checks the curve
equation, in half the time of OpenSSL (DECISIONS D647). This module checks the encodings
on which implementations differ (Chalkias et al., "Taming the many EdDSAs", 2020).
"""

from functools import lru_cache

from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from replica.ids import PublicKey
from replica.refusals import KeyInvalid, SignatureInvalid

KEYS_CACHED = 1_024
"""Author keys that are not checked again."""

FIELD_PRIME = 2**255 - 19
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493

_ORDER_8_Y = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
SMALL_ORDER_Y = frozenset({0, 1, FIELD_PRIME - 1, _ORDER_8_Y, FIELD_PRIME - _ORDER_8_Y})
"""y coordinates of the eight points whose order divides 8, each with both signs of x."""

WITH_FACTOR = (
    "1dfffe9a81c62240842b8a95d1efacaa78213742287d2b2f218ef6c9807ecfcc",
    "5e158c3a8b9e014e5478e8d8069450d1dfc23ddc72ed7ecd7e2978f14b0e5574"
    "4f1cfed620d8a769c9e2060ed871c68e164ca1d0500cf1b3bf5eb9f7b59a9303",
    "6d6573736167652031",
)
"""Key, signature and message for which the equation holds with a factor of 8 alone."""


def verify(key: PublicKey, signature: bytes, message: bytes) -> None:
    """Verify a signature. Raises KeyInvalid, SignatureInvalid."""
    _check_once(key)
    check_signature(signature)
    if not _holds(key, signature, message):
        raise SignatureInvalid


@lru_cache(KEYS_CACHED)
def _check_once(key: bytes) -> None:
    check_key(key)


def _holds(key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        crypto_sign_open(signature + message, key)
    except BadSignatureError:
        return False
    return True


def check_library() -> None:
    """Raise ImportError if libsodium verifies with a factor of 8, as some libraries do.

    A replica that admits what others refuse would not converge with them.
    """
    if _holds(*map(bytes.fromhex, WITH_FACTOR)):
        raise ImportError(
            "the libsodium that PyNaCl uses here admits signatures that Antiphon refuses; "
            "install a PyNaCl from PyPI: pip install --force-reinstall 'pynacl>=1.6.2,<1.7'"
        )


check_library()


def check_key(key: bytes) -> None:
    """Raise KeyInvalid for a wrong length, or a non-canonical or small-order point."""
    if len(key) != 32:
        raise KeyInvalid(f"a key has 32 bytes, not {len(key)}")
    problem = _point_problem(key)
    if problem:
        raise KeyInvalid(f"the author key is {problem}")


def check_signature(signature: bytes) -> None:
    """Raise SignatureInvalid for a wrong length, S >= L, or a bad R encoding."""
    if len(signature) != 64:
        raise SignatureInvalid(f"a signature has 64 bytes, not {len(signature)}")
    problem = _point_problem(signature[:32])
    if problem:
        raise SignatureInvalid(f"R is {problem}")
    if int.from_bytes(signature[32:], "little") >= GROUP_ORDER:
        raise SignatureInvalid("S is not below the group order")


def _point_problem(encoded: bytes) -> str | None:
    y = int.from_bytes(encoded, "little") & (2**255 - 1)
    if y >= FIELD_PRIME:
        return "not canonical"
    if y in SMALL_ORDER_Y:
        return "of small order"
    return None
