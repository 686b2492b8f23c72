"""Conversations are erased in steps that fit the disk."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
APART = ["unshare", "--mount", "--map-root-user"]


def test_a_long_conversation_is_erased_where_little_room_is_left(tmp_path: Path) -> None:
    """What is erased is overwritten, in a log that takes its room before it is emptied."""
    if subprocess.run([*APART, "mount", "-t", "tmpfs", "x", "/mnt"], check=False).returncode:
        pytest.skip("this user may mount nothing")
    argv = [
        *APART,
        sys.executable,
        "-m",
        "tests.replica.io.store.erased_on_small_disk",
        str(tmp_path),
    ]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    left, before, after = json.loads(done.stdout)
    assert left == 0
    assert after >= before
