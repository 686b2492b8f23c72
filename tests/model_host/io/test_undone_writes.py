"""A checkpoint that is not written to its end leaves nothing on disk, whatever ended it."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from model_host.errors import CheckpointDropped
from model_host.io.files.checkpoint_files import Checkpoints
from model_host.kv.memory import Bytes
from tests.model_host.kv.plain_pages import PlainPages, filled, restore

IDS, NAMESPACE = list(range(400)), b"n" * 32


def saved(root: Path, tokens: int) -> Checkpoints:
    """Return a store with a checkpoint of the first tokens."""
    store = Checkpoints(root, mac_key=b"k" * 32, budget_bytes=1 << 24)
    store.save(b"a", NAMESPACE, b"s" * 32, b"", IDS[:tokens], filled(tokens))
    return store


def test_nothing_remains_of_a_checkpoint_whose_payloads_end_in_an_unknown_error(
    tmp_path: Path,
) -> None:
    origin, store = saved(tmp_path / "origin", 400), saved(tmp_path / "store", 200)
    (head,) = origin.manifests(b"a")

    def payloads() -> Iterator[Bytes]:
        yield origin.read(b"a", head.pieces[0])
        raise ValueError("I/O operation on closed file")

    before = store.nbytes, sorted((tmp_path / "store").rglob("*"))
    for _ in range(2):
        with pytest.raises(ValueError, match="closed"):
            store.add(b"a", head, payloads())
        assert (store.nbytes, sorted((tmp_path / "store").rglob("*"))) == before
    assert restore(store, b"a", NAMESPACE, IDS) == filled(200)


class Judged(PlainPages):
    """Pages of which the last is read when an audit finds another one wrong."""

    store: Checkpoints

    def read(self, start: int, stop: int) -> Bytes:
        if stop == self.tokens:
            self.store.distrust(NAMESPACE)
        return super().read(start, stop)


@pytest.mark.parametrize("is_added", [False, True])
def test_nothing_remains_of_what_is_being_written_when_its_namespace_is_distrusted(
    tmp_path: Path, is_added: bool
) -> None:
    origin, store = saved(tmp_path / "origin", 200), saved(tmp_path / "store", 0)
    (head,) = origin.manifests(b"a")
    pages = Judged(filled(200)._rows)
    pages.store = store
    starts = (0, *(piece.stop for piece in head.pieces))
    payloads = (pages.read(*each) for each in pairwise(starts))
    with pytest.raises(CheckpointDropped):  # PAGE-16
        if is_added:
            store.add(b"a", head, payloads)
        else:
            store.save(b"a", NAMESPACE, b"s" * 32, b"", IDS[:200], pages)
    assert (store.manifests(b"a"), store.nbytes) == ([], 0)
