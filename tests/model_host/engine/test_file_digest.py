"""A digest is that of the bytes, whatever times a program gives to the file (DECISIONS D181)."""

import os
from pathlib import Path

from model_host.engine.file_digest import file_sha256, file_state


def test_a_file_written_again_has_another_digest_though_its_size_and_time_are_the_same(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"one")
    digest, state, before = file_sha256(path), file_state(path), path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of a file system has ticks
        path.write_bytes(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert file_sha256(path) != digest
    assert file_state(path) != state
