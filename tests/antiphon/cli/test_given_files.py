"""Files that are given by mistake: they are refused by their beginning."""

import os
from pathlib import Path

from tests.antiphon.cli.conftest import Terminal

LARGE_BYTES = 1 << 40


def test_a_large_file_that_is_no_bundle_is_not_read_on(me: Terminal, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.touch()
    os.truncate(model, LARGE_BYTES)
    assert me.refused("import", str(model)) == "BUNDLE_INVALID"
    assert me.refused("verify", "--bundle", str(model)) == "BUNDLE_INVALID"
    assert me.refused("key", "restore", str(model)) == "BACKUP_INVALID"
    assert me.refused("replay", "--check", str(model)) == "RECEIPT_INVALID"
    assert me.refused("import", "/dev/zero") == "BUNDLE_INVALID"
