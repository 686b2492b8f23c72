"""Encodings of keys and signatures on which libraries disagree (spec/02-entry §4)."""

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.ids import PublicKey
from replica.log import ed25519
from replica.log.ed25519 import (
    FIELD_PRIME,
    GROUP_ORDER,
    SMALL_ORDER_Y,
    check_key,
    check_library,
    check_signature,
    verify,
)
from replica.refusals import KeyInvalid, SignatureInvalid

SECRET = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = SECRET.public_key().public_bytes_raw()
SIGNATURE = SECRET.sign(b"x")


def point(y: int, *, sign: bool = False) -> bytes:
    return (y | sign << 255).to_bytes(32, "little")


def test_a_generated_key_and_its_signature_pass() -> None:
    check_key(KEY)
    check_signature(SIGNATURE)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_has_32_bytes(size: int) -> None:
    with pytest.raises(KeyInvalid, match=f"not {size}"):
        check_key(bytes(size))


@pytest.mark.parametrize("size", [0, 63, 65])
def test_a_signature_has_64_bytes(size: int) -> None:
    with pytest.raises(SignatureInvalid, match=f"not {size}"):
        check_signature(bytes(size))


@pytest.mark.parametrize("sign", [False, True])
@pytest.mark.parametrize("y", sorted(SMALL_ORDER_Y))
def test_points_of_small_order_are_refused_as_key_and_as_r(y: int, sign: bool) -> None:
    with pytest.raises(KeyInvalid, match="small order"):
        check_key(point(y, sign=sign))
    with pytest.raises(SignatureInvalid, match="small order"):
        check_signature(point(y, sign=sign) + SIGNATURE[32:])


@pytest.mark.parametrize("y", [FIELD_PRIME, FIELD_PRIME + 1, 2**255 - 1])
def test_points_beyond_the_field_are_refused_as_key_and_as_r(y: int) -> None:
    with pytest.raises(KeyInvalid, match="not canonical"):
        check_key(point(y))
    with pytest.raises(SignatureInvalid, match="not canonical"):
        check_signature(point(y) + SIGNATURE[32:])


def test_s_is_below_the_group_order() -> None:
    at_most = (GROUP_ORDER - 1).to_bytes(32, "little")
    check_signature(SIGNATURE[:32] + at_most)
    for s in (GROUP_ORDER, int.from_bytes(SIGNATURE[32:], "little") + GROUP_ORDER):
        with pytest.raises(SignatureInvalid, match="group order"):
            check_signature(SIGNATURE[:32] + s.to_bytes(32, "little"))


def test_every_wrong_bit_of_a_signature_is_refused_as_openssl_does() -> None:
    public = SECRET.public_key()
    verify(PublicKey(KEY), SIGNATURE, b"x")
    for bit in range(512):
        wrong = bytearray(SIGNATURE)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SignatureInvalid):
            verify(PublicKey(KEY), bytes(wrong), b"x")
        with pytest.raises(InvalidSignature):
            public.verify(bytes(wrong), b"x")


def test_a_library_that_admits_what_others_refuse_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_library()
    monkeypatch.setattr(ed25519, "crypto_sign_open", lambda _signed, _key: b"")
    with pytest.raises(ImportError, match="pip install"):
        check_library()


def test_the_points_of_small_order_are_eight_with_both_signs() -> None:
    # y = 1 and y = -1 have x = 0, and so one sign only.
    assert len(SMALL_ORDER_Y) == 5
    assert {(FIELD_PRIME - y) % FIELD_PRIME for y in SMALL_ORDER_Y} == SMALL_ORDER_Y
