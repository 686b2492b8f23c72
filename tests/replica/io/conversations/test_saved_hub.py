"""The address of the hub in a replica's folder."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from replica.errors import StoreError
from replica.io import save_hub, saved_hub
from replica.refusals import ArgumentInvalid


@contextmanager
def no_room() -> Iterator[None]:
    """Let every write to a file fail in the block, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def test_an_address_that_can_not_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    assert saved_hub(tmp_path) is None
    save_hub(tmp_path, "192.0.2.7:7412")
    with no_room(), pytest.raises(StoreError):
        save_hub(tmp_path, "192.0.2.7:7413")
    assert saved_hub(tmp_path) == "192.0.2.7:7412"
    save_hub(tmp_path, "192.0.2.7:7413")
    assert saved_hub(tmp_path) == "192.0.2.7:7413"
    assert [one.name for one in tmp_path.iterdir()] == ["hub.address"]


@pytest.mark.parametrize("content", [b"", b"somewhere", b"host:port"])
def test_what_is_no_address_is_refused_with_the_file_that_holds_it(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "hub.address").write_bytes(content)
    with pytest.raises(ArgumentInvalid, match=r"hub\.address holds no host:port"):
        saved_hub(tmp_path)
