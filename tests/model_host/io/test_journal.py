"""Journals: what is read back is what was written, whatever happened to the file's end."""

import resource
from pathlib import Path

import pytest

from model_host.io.journal import Journals
from model_host.journal_records import HEAD_BYTES, TOKEN_BYTES, JournalHead, decode_journal
from replica.errors import StoreError
from replica.ids import Digest, EntryId

HEAD = JournalHead(EntryId(b"r" * 32), EntryId(b"s" * 32), 7, Digest(b"p" * 32), Digest(b"c" * 32))
TOKENS = [5, 70_000, 0, 0, 3]


def written(folder: Path) -> Path:
    """Write a journal of TOKENS; return its file."""
    journal = Journals(folder).create(HEAD)
    for token in TOKENS:
        journal.append(token)
    journal.close()
    (path,) = folder.glob("*.journal")
    return path


def test_what_was_written_is_read_back(tmp_path: Path):
    written(tmp_path)
    assert Journals(tmp_path).read(HEAD.request) == (HEAD, TOKENS)
    assert Journals(tmp_path).requests() == [HEAD.request]
    Journals(tmp_path).discard(HEAD.request)
    assert Journals(tmp_path).read(HEAD.request) is None


def test_a_head_cut_off_is_no_journal_and_a_torn_token_is_no_token(tmp_path: Path):
    data = written(tmp_path).read_bytes()
    for size in range(len(data)):
        expected = (HEAD, TOKENS[: (size - HEAD_BYTES) // TOKEN_BYTES])
        assert decode_journal(data[:size]) == (expected if size >= HEAD_BYTES else None)


@pytest.mark.parametrize("tail", [bytes(24), b"\x05\0\0\0" * 6, bytes(range(1, 25))])
def test_bytes_that_power_loss_left_behind_are_no_tokens(tmp_path: Path, tail: bytes):
    data = written(tmp_path).read_bytes()
    assert decode_journal(data + tail) == (HEAD, TOKENS)
    at = HEAD_BYTES + 2 * TOKEN_BYTES
    assert decode_journal(data[:at] + tail) == (HEAD, TOKENS[:2])


def test_a_resumed_journal_goes_on_behind_the_last_whole_token(tmp_path: Path):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    journals = Journals(tmp_path)
    journal = journals.resume(HEAD, TOKENS[:4])
    journal.append(9)
    journal.close()
    assert journals.read(HEAD.request) == (HEAD, [*TOKENS[:4], 9])


def test_a_token_the_disk_took_half_of_is_cut_off_before_the_next(tmp_path: Path):
    path = written(tmp_path)
    journals = Journals(tmp_path)
    journal = journals.resume(HEAD, TOKENS)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 3, hard))
    try:
        with pytest.raises(StoreError):
            journal.append(8)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        journal.close()
    assert journals.read(HEAD.request) == (HEAD, TOKENS)
    journal = journals.resume(HEAD, TOKENS)
    journal.append(8)
    journal.close()
    assert journals.read(HEAD.request) == (HEAD, [*TOKENS, 8])
