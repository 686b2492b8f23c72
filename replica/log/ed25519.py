"""Ed25519 acceptance rules that libraries disagree on (spec/02-entry §4).

Cofactorless, S < L, canonical and large-order A and R. The `cryptography` package
checks the curve equation. This module checks the encodings on which
implementations differ (Chalkias et al., "Taming the many EdDSAs", 2020).
"""

from replica.refusals import KeyInvalid, SignatureInvalid

FIELD_PRIME = 2**255 - 19
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493

_ORDER_8_Y = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
SMALL_ORDER_Y = frozenset({0, 1, FIELD_PRIME - 1, _ORDER_8_Y, FIELD_PRIME - _ORDER_8_Y})
"""y coordinates of the eight points whose order divides 8, each with both signs of x."""


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
