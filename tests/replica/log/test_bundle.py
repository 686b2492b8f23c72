import dataclasses
import hashlib
import random
import struct
from io import BytesIO

import pytest

from replica.ids import Digest
from replica.limits import DRAFT
from replica.log.body import Message, Opaque, Speaker
from replica.log.bundle import MAGIC, BlobSource, Bundle, decode_bundle, encode_bundle
from replica.log.entry import Entry
from replica.refusals import BundleInvalid, DraftUnknown
from tests.support.writers import Writer, log, said


def blob(content: bytes) -> tuple[Digest, bytes]:
    return Digest(hashlib.sha256(content).digest()), content


def bundle(entries: list[Entry], *blobs: tuple[Digest, bytes]) -> bytes:
    sources = [BlobSource(digest, len(content), [content]) for digest, content in blobs]
    return b"".join(encode_bundle(entries, sources))


def decoded(data: bytes) -> Bundle:
    return decode_bundle(BytesIO(data))


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
    read = decoded(bundle(shuffled))
    assert read.entries == tuple(entries)
    assert read.blobs == {}


def test_the_same_conversation_always_gives_the_same_bundle() -> None:
    assert bundle(log(5)) == bundle(log(5)[::-1])


def test_blobs_come_along() -> None:
    blobs = (blob(b"picture"), blob(b""), blob(bytes(100_000)))
    found = decoded(bundle(log(2), *blobs)).blobs
    assert {digest: b"".join(one.pieces()) for digest, one in found.items()} == dict(blobs)
    assert b"".join(found[blobs[2][0]].pieces(99_999)) == b"\0"


class Counted(BytesIO):
    """A file that notes the largest part that was read of it at once."""

    largest = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.largest = max(self.largest, len(data))
        return data


def test_a_blob_is_never_whole_in_memory() -> None:
    large = blob(bytes(4_000_000))
    file = Counted(bundle(log(2), large))
    found = decode_bundle(file).blobs[large[0]]
    assert max(map(len, found.pieces())) <= file.largest <= 256 * 1024


def test_a_file_that_becomes_shorter_while_it_is_read_is_refused() -> None:
    picture = blob(b"picture")
    file = BytesIO(bundle(log(2), picture))
    found = decode_bundle(file).blobs[picture[0]]
    file.truncate(found.at + 3)
    with pytest.raises(BundleInvalid, match="became shorter"):
        list(found.pieces())


class Shrinking(BytesIO):
    """A file of which only the beginning is left once its size was asked for."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        at = super().seek(offset, whence)
        if whence:
            self.truncate(len(MAGIC) + 4)
        return at


def test_a_file_that_becomes_shorter_inside_a_record_is_refused() -> None:
    with pytest.raises(BundleInvalid, match="became shorter"):
        decode_bundle(Shrinking(bundle(log(2))))


@pytest.mark.parametrize("content", [b"pictures", b"picturE"])
def test_a_blob_that_changed_is_not_encoded(content: bytes) -> None:
    digest, picture = blob(b"picture")
    with pytest.raises(BundleInvalid, match="does not have its size and digest"):
        list(encode_bundle(log(2), [BlobSource(digest, len(picture), [content])]))


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
    assert decoded(bundle([genesis, opaque, withheld])).entries[1:] == (opaque, withheld)


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
            decoded(bytes(bad))


def test_any_cut_is_found() -> None:
    data = bundle(log(2), blob(b"picture"))
    for size in range(len(data)):
        with pytest.raises(BundleInvalid):
            decoded(data[:size])
    with pytest.raises(BundleInvalid):
        decoded(data + b"\0")


def test_a_refusal_names_the_record_and_its_byte() -> None:
    entries = log(2)
    good = bundle(entries)
    genesis = len(MAGIC) + len(draft(DRAFT))
    first = genesis + 9 + struct.unpack_from("<Q", good, genesis + 1)[0]
    with pytest.raises(BundleInvalid, match=f"record 2 at byte {first}: "):
        decoded(sealed(good[:first] + record(9, b"")))


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
        (record(1, bytes(1024 * 1024 + 1)), "longer than an entry"),
        (record(3, struct.pack("<QQ", 3, 0)) + b"more", "follow the end"),
        (struct.pack("<BQQ", 4, 8, DRAFT), "record type 4"),
    ],
)
def test_wrong_records_are_refused_even_with_a_right_digest(tail: bytes, why: str) -> None:
    data = bundle(log(2))
    records = data[: -32 - 9 - 16]
    with pytest.raises(BundleInvalid, match=why):
        decoded(sealed(records + tail))


def test_order_is_checked_even_with_a_right_digest() -> None:
    pieces = list(encode_bundle(log(2)))
    magic, genesis, first, second, _, _ = pieces
    end = record(3, struct.pack("<QQ", 3, 0))
    with pytest.raises(BundleInvalid, match="order"):
        decoded(sealed(magic + genesis + second + first + end))
    with pytest.raises(BundleInvalid, match="genesis"):
        decoded(sealed(magic + first + second + end))
    picture = record(2, b"".join(blob(b"x")))
    with pytest.raises(BundleInvalid, match="before blobs"):
        decoded(sealed(magic + genesis + picture + first + end))
    with pytest.raises(BundleInvalid, match="count"):
        decoded(sealed(magic + record(3, struct.pack("<QQ", 0, 0))))


def test_a_body_that_fails_its_digest_is_refused() -> None:
    entries = log(1)
    bad = dataclasses.replace(entries[1], body=bytes(len(entries[1].body or b"")))
    with pytest.raises(BundleInvalid, match=r"record 2 at byte .*SHA-256"):
        decoded(bundle([entries[0], bad]))


@pytest.mark.parametrize("number", [DRAFT - 1, DRAFT + 1, 2**64 - 1])
def test_a_bundle_of_another_draft_is_refused_with_the_way_out(number: int) -> None:
    rest = bundle(log(2))[len(MAGIC) + len(draft(DRAFT)) : -32]
    with pytest.raises(DraftUnknown, match=f"draft {number};") as caught:
        decoded(sealed(MAGIC + draft(number) + rest))
    assert "antiphon export" in caught.value.next_step
    # The draft number is read before the records, whatever these hold in another draft.
    with pytest.raises(DraftUnknown):
        decoded(sealed(MAGIC + draft(number) + record(77, b"later")))


def test_a_bundle_of_the_first_draft_is_distinguished_from_a_damaged_one() -> None:
    rest = bundle(log(2))[len(MAGIC) + len(draft(DRAFT)) : -32]
    with pytest.raises(DraftUnknown, match="draft 1;"):
        decoded(sealed(MAGIC + rest))
    with pytest.raises(BundleInvalid, match="8 bytes"):
        decoded(sealed(MAGIC + record(4, b"") + rest))
