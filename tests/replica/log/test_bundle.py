import dataclasses
import hashlib
import random
import struct

import pytest

from replica.ids import Digest
from replica.limits import DRAFT
from replica.log.body import Message, Opaque, Speaker
from replica.log.bundle import MAGIC, decode_bundle, encode_bundle
from replica.log.entry import Entry
from replica.refusals import BundleInvalid, DraftUnknown
from tests.support.writers import Writer, log, said


def blob(content: bytes) -> tuple[Digest, bytes]:
    return Digest(hashlib.sha256(content).digest()), content


def bundle(entries: list[Entry], *blobs: tuple[Digest, bytes]) -> bytes:
    return b"".join(encode_bundle(entries, blobs))


def sealed(data: bytes) -> bytes:
    """Append the right digest to invalid records."""
    return data + hashlib.sha256(data).digest()


def record(kind: int, content: bytes) -> bytes:
    return struct.pack("<BQ", kind, len(content)) + content


def draft(number: int) -> bytes:
    return record(4, struct.pack("<Q", number))


def test_a_bundle_gives_back_the_conversation_in_order() -> None:
    entries = log(20)
    shuffled = random.Random(1).sample(entries, len(entries))
    decoded = decode_bundle(bundle(shuffled))
    assert decoded.entries == tuple(entries)
    assert decoded.blobs == {}


def test_the_same_conversation_always_gives_the_same_bundle() -> None:
    assert bundle(log(5)) == bundle(log(5)[::-1])


def test_blobs_come_along() -> None:
    blobs = (blob(b"picture"), blob(b""), blob(bytes(100_000)))
    assert decode_bundle(bundle(log(2), *blobs)).blobs == dict(blobs)


def test_opaque_parts_and_missing_bodies_are_kept_as_they_are() -> None:
    writer = Writer(1)
    genesis = writer.genesis()
    part = Opaque("issuer", data=bytes(range(256)))
    opaque = writer.write(
        genesis.conversation, Message(Speaker.ASSISTANT, (part,)), parents=[genesis]
    )
    withheld = dataclasses.replace(
        writer.write(genesis.conversation, said("gone"), parents=[opaque]), body=None
    )
    assert decode_bundle(bundle([genesis, opaque, withheld])).entries[1:] == (opaque, withheld)


@pytest.mark.parametrize(
    "entries",
    [[], log(3)[1:], [*log(1), *log(1)], [*log(2), *log(2, seed=2)]],
    ids=["nothing", "no genesis", "an entry twice", "two conversations"],
)
def test_entries_that_are_not_one_whole_conversation_are_not_encoded(entries: list[Entry]) -> None:
    with pytest.raises(BundleInvalid):
        bundle(entries)


def test_any_flipped_bit_is_found() -> None:
    data = bundle(log(2), blob(b"picture"))
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1 << at % 8
        with pytest.raises(BundleInvalid):
            decode_bundle(bytes(bad))


def test_any_cut_is_found() -> None:
    data = bundle(log(2), blob(b"picture"))
    for size in range(len(data)):
        with pytest.raises(BundleInvalid):
            decode_bundle(data[:size])
    with pytest.raises(BundleInvalid):
        decode_bundle(data + b"\0")


def test_a_refusal_names_the_record_and_its_byte() -> None:
    entries = log(2)
    good = bundle(entries)
    genesis = len(MAGIC) + len(draft(DRAFT))
    first = genesis + 9 + struct.unpack_from("<Q", good, genesis + 1)[0]
    with pytest.raises(BundleInvalid, match=f"record 2 at byte {first}: "):
        decode_bundle(sealed(good[:first] + record(9, b"")))


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (record(3, struct.pack("<QQ", 2, 1)), "count"),
        (record(3, b""), "count"),
        (record(2, b"short"), "digest"),
        (record(2, bytes(32) + b"other"), "digest"),
        (record(2, b"".join(blob(b"x"))) * 2, "twice"),
        (record(1, b"\xff"), "not a Entry"),
        (b"\x01", "middle of a record"),
        (struct.pack("<BQ", 1, 2**64 - 1), "longer than the file"),
        (record(3, struct.pack("<QQ", 3, 0)) + b"more", "follow the end"),
        (struct.pack("<BQQ", 4, 8, DRAFT), "record type 4"),
    ],
)
def test_wrong_records_are_refused_even_with_a_right_digest(tail: bytes, why: str) -> None:
    data = bundle(log(2))
    records = data[: -32 - 9 - 16]
    with pytest.raises(BundleInvalid, match=why):
        decode_bundle(sealed(records + tail))


def test_order_is_checked_even_with_a_right_digest() -> None:
    pieces = list(encode_bundle(log(2)))
    magic, genesis, first, second, _, _ = pieces
    end = record(3, struct.pack("<QQ", 3, 0))
    with pytest.raises(BundleInvalid, match="order"):
        decode_bundle(sealed(magic + genesis + second + first + end))
    with pytest.raises(BundleInvalid, match="genesis"):
        decode_bundle(sealed(magic + first + second + end))
    picture = record(2, b"".join(blob(b"x")))
    with pytest.raises(BundleInvalid, match="before blobs"):
        decode_bundle(sealed(magic + genesis + picture + first + end))
    with pytest.raises(BundleInvalid, match="count"):
        decode_bundle(sealed(magic + record(3, struct.pack("<QQ", 0, 0))))


def test_a_body_that_fails_its_digest_is_refused() -> None:
    entries = log(1)
    bad = dataclasses.replace(entries[1], body=bytes(len(entries[1].body or b"")))
    with pytest.raises(BundleInvalid, match=r"record 2 at byte .*SHA-256"):
        decode_bundle(bundle([entries[0], bad]))


@pytest.mark.parametrize("number", [DRAFT - 1, DRAFT + 1, 2**64 - 1])
def test_a_bundle_of_another_draft_is_refused_with_the_way_out(number: int) -> None:
    rest = bundle(log(2))[len(MAGIC) + len(draft(DRAFT)) : -32]
    with pytest.raises(DraftUnknown, match=f"draft {number};") as caught:
        decode_bundle(sealed(MAGIC + draft(number) + rest))
    assert "antiphon export" in caught.value.next_step
    # The draft number is read before the records, whatever these hold in another draft.
    with pytest.raises(DraftUnknown):
        decode_bundle(sealed(MAGIC + draft(number) + record(77, b"later")))


def test_a_bundle_of_the_first_draft_is_distinguished_from_a_damaged_one() -> None:
    rest = bundle(log(2))[len(MAGIC) + len(draft(DRAFT)) : -32]
    with pytest.raises(DraftUnknown, match="draft 1;"):
        decode_bundle(sealed(MAGIC + rest))
    with pytest.raises(BundleInvalid, match="8 bytes"):
        decode_bundle(sealed(MAGIC + record(4, b"") + rest))
