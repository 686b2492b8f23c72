"""Ids, signatures, bodies and the Ed25519 rules (spec/02-entry §3, §4)."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica import ids
from replica.conversation import Author
from replica.log import Genesis
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

ROOT = Path(__file__).parents[3]
ADA = Writer(1)
GENESIS = ADA.genesis()
MESSAGE = ADA.write(GENESIS.conversation, said("x"), parents=[GENESIS])


def test_a_pre_image_names_both_lengths() -> None:
    assert ids.pae(b"ab", b"c") == bytes([2, *[0] * 7]) + b"ab" + bytes([1, *[0] * 7]) + b"c"
    assert ids.pae(b"a", b"bc") != ids.pae(b"ab", b"c")


PLAIN_SHA_256 = {
    "replica/ids.py",  # TH itself
    "replica/log/entry.py",  # bodies
    "replica/log/bundle.py",  # a whole file, and blobs
    "replica/order/context.py",  # the chain of a context
    "replica/conversation/drafts.py",  # the chain of a draft, and its data inside PAE
    "replica/conversation/receipt.py",  # of PAE
    "replica/conversation/invitation.py",  # HMAC
    "replica/document/fold.py",  # of PAE
    "replica/document/projection.py",  # of PAE
    "replica/link/auth.py",  # HMACs of the hub's own
}
"""Pure modules that hash without TH, and the exception of CONV-1 that each is."""


def test_every_other_hash_of_the_core_is_tagged() -> None:
    found = {
        str(path.relative_to(ROOT))
        for package in ("replica", "syncd")
        for path in (ROOT / package).rglob("*.py")
        if "io" not in path.parts and "hashlib" in path.read_text()
    }
    assert found <= PLAIN_SHA_256


def test_tags_of_the_core_are_used_for_one_purpose_each() -> None:
    literal = re.compile(r'= (?:pae\()?b"(antiphon/v1/[^"\\]*)')
    tags = [
        tag
        for package in ("replica", "syncd")
        for path in (ROOT / package).rglob("*.py")
        for tag in literal.findall(path.read_text())
    ]
    assert len(tags) > 15
    assert len(set(tags)) == len(tags)


def test_entries_are_ordered_by_lamport_as_a_number_then_by_id_as_bytes() -> None:
    low, high = ids.EntryId(b"\x00" * 31 + b"\xff"), ids.EntryId(b"\x80" + bytes(31))

    def key(lamport: int, entry_id: ids.EntryId) -> tuple[int, bytes]:
        header = replace(MESSAGE.header, lamport=lamport)
        entry = replace(MESSAGE, header=header)
        object.__setattr__(entry, "id", entry_id)
        return entry.order_key

    wanted = [(9, high), (10, low), (10, high), (255, low), (256, low), (2**53 - 1, low)]
    keys = [key(*one) for one in reversed(wanted)]
    keys.sort()
    assert keys == wanted


def test_the_example_of_the_chapter_is_a_genesis_of_its_key() -> None:
    chapter = (ROOT / "spec" / "02-entry.md").read_text()
    block = re.search(r"```hex\n(.*?)```", chapter, re.DOTALL)
    assert block is not None
    data = bytes.fromhex("".join(line.split("  ")[0] for line in block[1].splitlines()))
    author = Author(Ed25519PrivateKey.from_private_bytes(b"\x01" * 32), epoch=7)
    entry = author.genesis(Genesis((author.public,)), salt=bytes(16), time_ms=1)
    assert entry.header_bytes == data
    assert f"`{entry.id.hex()}`" in chapter


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
