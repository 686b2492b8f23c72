"""Tagged pre-images, hashes over them, and keys as people type them (spec/00-conventions)."""

import hashlib

import pytest

from replica.ids import Lane, PublicKey, Track, key_from_hex, pae, short, tagged_sha256


def test_a_pre_image_holds_both_lengths_as_8_byte_little_endian() -> None:
    assert pae(b"ab", b"cde") == b"\x02" + bytes(7) + b"ab" + b"\x03" + bytes(7) + b"cde"


def test_no_two_pairs_share_a_pre_image() -> None:
    assert pae(b"a", b"bc") != pae(b"ab", b"c")
    assert pae(b"", b"") == bytes(16)


def test_a_hash_covers_the_pre_image() -> None:
    assert tagged_sha256(b"t", b"x") == hashlib.sha256(pae(b"t", b"x")).digest()
    assert tagged_sha256(b"t", b"x") != tagged_sha256(b"u", b"x")


def test_a_key_is_read_from_64_hex_digits() -> None:
    assert key_from_hex(f" {'0a' * 32}\n") == b"\x0a" * 32


@pytest.mark.parametrize("text", ["", "0a" * 31, "0a" * 33, "zz" * 32])
def test_anything_else_is_no_key_and_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="64 hex digits") as caught:
        key_from_hex(text)
    assert f"'{text}'" in str(caught.value)


def test_the_short_form_is_the_first_12_hex_digits() -> None:
    assert short(bytes(range(32))) == "000102030405"


def test_lanes_are_ordered_by_author_epoch_and_track() -> None:
    low, high = (PublicKey(bytes([n]) * 32) for n in (1, 2))
    lanes = [
        Lane(low, 1, Track.CONVERSATION),
        Lane(low, 1, Track.DOCUMENT),
        Lane(low, 2, Track.ALL),
        Lane(high, 1, Track.ALL),
    ]
    assert sorted([lanes[2], lanes[0], lanes[3], lanes[1]]) == lanes


def test_the_tracks_have_the_numbers_of_the_protocol() -> None:
    assert [t.value for t in (Track.ALL, Track.CONVERSATION, Track.DOCUMENT, Track.MEMBERSHIP)] == [
        0, 1, 2, 3,
    ]  # fmt: skip
