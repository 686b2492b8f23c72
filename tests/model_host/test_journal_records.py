"""The records of a journal: written ones are read, and a torn or foreign one is no token."""

import pytest

from model_host.journal_records import (
    HEAD_BYTES,
    TOKEN_BYTES,
    JournalHead,
    decode_journal,
    encode_token,
)
from replica.conversation.drafts import extend_digest, start_digest
from replica.ids import Digest, EntryId

HEAD = JournalHead(EntryId(b"r" * 32), EntryId(b"s" * 32), 7, Digest(b"p" * 32), Digest(b"c" * 32))
TOKENS = [5, 70_000, 0, 0, 3, 2**32 - 1]


def journal(head: JournalHead = HEAD, tokens: list[int] = TOKENS) -> bytes:
    data, digest = head.encode(), head.digest
    for token_id in tokens:
        digest = extend_digest(digest, (token_id,))
        data += encode_token(token_id, digest)
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
