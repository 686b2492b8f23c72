"""Ids, signatures, bodies and the Ed25519 rules (spec/02-entry §3, §4)."""

from dataclasses import replace

import pytest

from replica import ids
from replica.log import ed25519 as ed25519_rules
from replica.log.entry import (
    body_digest,
    salted,
    sign,
    verify_body,
    verify_signature,
)
from replica.refusals import BodyDigestMismatch, KeyInvalid, SignatureInvalid
from spec.vectors.make import curve
from tests.support.writers import Writer, said

ADA = Writer(1)
GENESIS = ADA.genesis()
MESSAGE = ADA.write(GENESIS.conversation, said("x"), parents=[GENESIS])


def test_a_pre_image_names_both_lengths() -> None:
    assert ids.pae(b"ab", b"c") == bytes([2, *[0] * 7]) + b"ab" + bytes([1, *[0] * 7]) + b"c"
    assert ids.pae(b"a", b"bc") != ids.pae(b"ab", b"c")


def test_short_is_twelve_hex_digits() -> None:
    assert ids.short(bytes(range(32))) == "000102030405"


def test_a_signed_entry_verifies_as_its_authors_alone() -> None:
    assert MESSAGE.signature == sign(MESSAGE.header_bytes, ADA.key)
    verify_signature(MESSAGE)
    another = replace(MESSAGE, header=replace(MESSAGE.header, author=Writer(2).public))
    with pytest.raises(SignatureInvalid):
        verify_signature(another)


@pytest.mark.parametrize("bit", range(0, 512, 37))
def test_no_bit_of_a_signature_may_change(bit: int) -> None:
    signature = bytearray(MESSAGE.signature)
    signature[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SignatureInvalid):
        verify_signature(replace(MESSAGE, signature=bytes(signature)))


def test_an_id_covers_the_header_alone() -> None:
    from replica.log.entry import entry_id

    assert entry_id(MESSAGE.header_bytes) == MESSAGE.id
    assert entry_id(MESSAGE.header_bytes + b"\0") != MESSAGE.id


def test_a_missing_body_is_no_mismatch_but_an_empty_one_is() -> None:
    verify_body(replace(MESSAGE, body=None))
    with pytest.raises(BodyDigestMismatch):
        verify_body(replace(MESSAGE, body=b""))


def test_a_body_has_the_size_and_digest_stated() -> None:
    assert MESSAGE.body is not None
    assert body_digest(MESSAGE.body) == MESSAGE.header.body_digest
    verify_body(MESSAGE)
    with pytest.raises(BodyDigestMismatch, match="bytes, the header says"):
        verify_body(replace(MESSAGE, body=MESSAGE.body + b"x"))
    with pytest.raises(BodyDigestMismatch, match="SHA-256"):
        verify_body(replace(MESSAGE, body=bytes(len(MESSAGE.body))))


def test_the_salt_hides_equal_bodies() -> None:
    assert body_digest(salted(bytes(16), b"x")) != body_digest(salted(b"\1" * 16, b"x"))


def test_an_entry_names_its_ancestors_once() -> None:
    header = replace(MESSAGE.header, prev=GENESIS.id, parents=(GENESIS.id,), basis=MESSAGE.id)
    assert header.ancestors() == (GENESIS.id, MESSAGE.id)


def test_a_genesis_is_its_own_conversation() -> None:
    assert GENESIS.conversation == GENESIS.id == MESSAGE.conversation


def test_size_counts_header_signature_and_body() -> None:
    assert MESSAGE.body is not None
    size = len(MESSAGE.header_bytes) + 64 + len(MESSAGE.body)
    assert MESSAGE.size_bytes == size
    assert replace(MESSAGE, body=None).size_bytes == size - len(MESSAGE.body)


# --- Ed25519 rules ------------------------------------------------------------


def test_the_small_order_list_is_the_torsion_of_the_curve() -> None:
    torsion = curve.torsion()
    assert len(set(torsion)) == 8
    assert all(curve.multiply(8, point) == curve.IDENTITY for point in torsion)
    assert {y for _, y in torsion} == ed25519_rules.SMALL_ORDER_Y


@pytest.mark.parametrize("point", curve.torsion())
@pytest.mark.parametrize("sign", [0, 1 << 255])
def test_no_key_or_r_of_small_order_whatever_its_sign_bit(point: curve.Point, sign: int) -> None:
    encoded = (point[1] | sign).to_bytes(32, "little")
    with pytest.raises(KeyInvalid, match="small order"):
        ed25519_rules.check_key(encoded)
    with pytest.raises(SignatureInvalid, match="small order"):
        ed25519_rules.check_signature(encoded + bytes(32))


def test_y_stays_below_the_prime() -> None:
    ed25519_rules.check_key((ed25519_rules.FIELD_PRIME - 2).to_bytes(32, "little"))
    for y in range(ed25519_rules.FIELD_PRIME, 2**255):
        with pytest.raises(KeyInvalid, match="not canonical"):
            ed25519_rules.check_key(y.to_bytes(32, "little"))


def test_s_stays_below_the_group_order() -> None:
    r = ADA.public
    ed25519_rules.check_signature(r + (ed25519_rules.GROUP_ORDER - 1).to_bytes(32, "little"))
    with pytest.raises(SignatureInvalid, match="S is not below"):
        ed25519_rules.check_signature(r + ed25519_rules.GROUP_ORDER.to_bytes(32, "little"))


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_has_32_bytes(size: int) -> None:
    with pytest.raises(KeyInvalid, match="32 bytes"):
        ed25519_rules.check_key(bytes(size))


@pytest.mark.parametrize("size", [0, 63, 65])
def test_a_signature_has_64_bytes(size: int) -> None:
    with pytest.raises(SignatureInvalid, match="64 bytes"):
        ed25519_rules.check_signature(bytes(size))
