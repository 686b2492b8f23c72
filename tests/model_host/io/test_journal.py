"""Journals are read back as they were written, also with a damaged end."""

import os
import resource
import tracemalloc
from pathlib import Path

import pytest

from model_host.generation import JOURNAL_BYTES_MAX, JournalHead
from model_host.io.files.journal import Journals
from model_host.sampling import Choice
from replica.errors import StoreError
from replica.ids import Digest, EntryId
from replica.log.body import TokenLogprobs

HEAD = JournalHead(EntryId(b"r" * 32), EntryId(b"s" * 32), 7, Digest(b"p" * 32), Digest(b"c" * 32))
TOKENS = [Choice(i) for i in (5, 70_000, 0, 0, 3)]


def written(folder: Path) -> Path:
    """Write a journal of TOKENS; return its file."""
    journal = Journals(folder).create(HEAD)
    journal.append(TOKENS[:2])
    journal.append(TOKENS[2:])
    journal.close()
    (path,) = folder.glob("*.journal")
    return path


def test_written_tokens_are_read_back(tmp_path: Path):
    written(tmp_path)
    assert Journals(tmp_path).read(HEAD.request) == (HEAD, TOKENS)
    assert Journals(tmp_path).requests() == [HEAD.request]
    Journals(tmp_path).discard(HEAD.request)
    assert Journals(tmp_path).read(HEAD.request) is None


def test_a_journal_of_a_first_start_is_durable_with_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = set[int](), os.fsync

    def note(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    path = written(tmp_path / "host" / "journal")
    paths = (tmp_path, path.parent.parent, path.parent, path)
    assert synced == {one.stat().st_ino for one in paths}
    assert [one.stat().st_mode & 0o777 for one in paths[1:]] == [0o700, 0o700, 0o600]


def test_a_resumed_journal_continues_after_the_last_whole_token(tmp_path: Path):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    journals = Journals(tmp_path)
    journal = journals.resume(HEAD, TOKENS[:4])
    journal.append([Choice(9)])
    journal.close()
    assert journals.read(HEAD.request) == (HEAD, [*TOKENS[:4], Choice(9)])


def test_a_resumed_journal_continues_with_log_probabilities(tmp_path: Path):
    journals = Journals(tmp_path)
    first, second = (Choice(i, TokenLogprobs(-0.5, (i,), (-0.5,))) for i in (7, 8))
    journal = journals.create(HEAD)
    journal.append([first])
    journal.close()
    (path,) = tmp_path.glob("*.journal")
    path.write_bytes(path.read_bytes() + b"torn")
    journal = journals.resume(HEAD, [first], 1)
    journal.append([second])
    journal.close()
    assert journals.read(HEAD.request, 1) == (HEAD, [first, second])


def test_a_half_written_token_is_cut_off_before_the_next(tmp_path: Path):
    path = written(tmp_path)
    journals = Journals(tmp_path)
    journal = journals.resume(HEAD, TOKENS)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 3, hard))
    try:
        with pytest.raises(StoreError):
            journal.append([Choice(8)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        journal.close()
    assert journals.read(HEAD.request) == (HEAD, TOKENS)
    journal = journals.resume(HEAD, TOKENS)
    journal.append([Choice(8)])
    journal.close()
    assert journals.read(HEAD.request) == (HEAD, [*TOKENS, Choice(8)])


def test_a_pipe_in_place_of_a_journal_is_not_waited_for(tmp_path: Path):
    path = written(tmp_path)
    path.unlink()
    os.mkfifo(path)
    journals = Journals(tmp_path)
    assert journals.read(HEAD.request) is None
    with pytest.raises(StoreError):
        journals.create(HEAD)


def test_a_journal_of_a_damaged_length_is_read_within_bounds(tmp_path: Path):
    path = written(tmp_path)
    os.truncate(path, 1 << 30)
    tracemalloc.start()
    try:
        assert Journals(tmp_path).read(HEAD.request) == (HEAD, TOKENS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * JOURNAL_BYTES_MAX
