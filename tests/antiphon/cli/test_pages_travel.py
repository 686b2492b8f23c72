"""Archives are known by how they begin, before anything in them is believed."""

from pathlib import Path

import pytest

from antiphon.cli.commands import pages_travel
from model_host.kv.archive import MAGIC
from tests.antiphon.cli.conftest import Terminal


def test_the_cli_and_the_host_mean_the_same_archives() -> None:
    assert pages_travel._MAGIC == MAGIC


@pytest.mark.parametrize(
    "data",
    [b"", MAGIC, MAGIC + bytes(31), b"%PDF-1.7" + bytes(500), b"\xff" * 100],
    ids=["empty", "magic alone", "half an id", "another kind", "noise"],
)
def test_a_file_that_is_no_archive_is_refused_as_one(
    me: Terminal, tmp_path: Path, data: bytes
) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)
    result = me.run("pages", "import", str(file))
    assert "ARGUMENT_INVALID" in result.stderr
    assert "is no checkpoint archive" in result.stderr
