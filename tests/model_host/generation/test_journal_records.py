"""The records of a journal: written ones are read, and a torn or foreign one is no token."""

import math

import pytest

from model_host.generation.journal_records import (
    HEAD_BYTES,
    TOKEN_BYTES,
    JournalHead,
    decode_journal,
    encode_token,
    token_bytes,
)
from model_host.sampling import Choice
from replica.conversation.drafts import extend_digest, start_digest
from replica.ids import Digest, EntryId
from replica.log.body import TokenLogprobs

HEAD = JournalHead(EntryId(b"r" * 32), EntryId(b"s" * 32), 7, Digest(b"p" * 32), Digest(b"c" * 32))
TOKENS = [Choice(i) for i in (5, 70_000, 0, 0, 3, 2**32 - 1)]
RECORDED = [
    Choice(5, TokenLogprobs(-0.5, (5, 9), (-0.5, -1.5))),
    Choice(0, TokenLogprobs(-7.25, (1, 2**32 - 1), (-0.125, -math.inf))),
    Choice(0, TokenLogprobs(0.0, (0, 3), (0.0, -20.0))),
]


def journal(head: JournalHead = HEAD, tokens: list[Choice] = TOKENS) -> bytes:
    data, digest = head.encode(), head.digest
    for choice in tokens:
        digest = extend_digest(digest, (choice.token_id,))
        data += encode_token(choice, digest)
    return data


def test_written_records_are_read_back() -> None:
    assert len(journal()) == HEAD_BYTES + len(TOKENS) * TOKEN_BYTES
    assert decode_journal(journal()) == (HEAD, TOKENS)
    assert decode_journal(HEAD.encode()) == (HEAD, [])
    assert HEAD.digest == start_digest(HEAD.request, HEAD.run)


def test_a_head_cut_off_is_no_journal_and_a_torn_token_is_no_token() -> None:
    data = journal()
    for size in range(len(data)):
        whole = TOKENS[: max(0, size - HEAD_BYTES) // TOKEN_BYTES]
        assert decode_journal(data[:size]) == (None if size < HEAD_BYTES else (HEAD, whole))


def test_log_probabilities_are_read_back() -> None:
    data = journal(tokens=RECORDED)
    assert len(data) == HEAD_BYTES + len(RECORDED) * token_bytes(2)
    assert decode_journal(data, 2) == (HEAD, RECORDED)


def test_a_torn_or_damaged_log_probability_ends_the_journal() -> None:
    data = journal(tokens=RECORDED)
    for size in range(HEAD_BYTES, len(data)):
        whole = RECORDED[: (size - HEAD_BYTES) // token_bytes(2)]
        assert decode_journal(data[:size], 2) == (HEAD, whole)
        assert decode_journal(data[:size] + bytes(len(data) - size), 2) == (HEAD, whole)
    for at in range(HEAD_BYTES + token_bytes(2), len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        whole = RECORDED[: (at - HEAD_BYTES) // token_bytes(2)]
        assert decode_journal(bytes(damaged), 2) == (HEAD, whole)


def test_a_head_with_a_flipped_bit_is_no_journal() -> None:
    data = journal()
    for bit in range(8 * HEAD_BYTES):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_journal(bytes(damaged)) is None


def test_another_magic_is_no_journal() -> None:
    assert decode_journal(b"AJRNL01\n" + journal()[8:]) is None


@pytest.mark.parametrize("tail", [bytes(24), b"\x05\0\0\0" * 6, bytes(range(1, 25))])
def test_a_record_with_a_wrong_digest_is_no_token(tail: bytes) -> None:
    assert decode_journal(journal() + tail) == (HEAD, TOKENS)
    at = HEAD_BYTES + 2 * TOKEN_BYTES
    assert decode_journal(journal()[:at] + tail) == (HEAD, TOKENS[:2])


def test_a_token_of_another_run_is_no_token() -> None:
    other = JournalHead(HEAD.request, HEAD.seal, 8, HEAD.profile, HEAD.numerics_class)
    assert decode_journal(HEAD.encode() + journal(other)[HEAD_BYTES:]) == (HEAD, [])


def test_a_token_out_of_order_ends_the_journal() -> None:
    data = journal()
    first, second = data[HEAD_BYTES:][:TOKEN_BYTES], data[HEAD_BYTES + TOKEN_BYTES :][:TOKEN_BYTES]
    assert decode_journal(HEAD.encode() + second + first) == (HEAD, [])
