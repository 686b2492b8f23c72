"""`antiphon replay` without a host; tests/model_host/io/test_replay_command.py has one."""

from pathlib import Path

from tests.antiphon.cli.conftest import Terminal


def test_a_receipt_that_can_not_be_saved_is_refused_before_a_host_is_asked(
    me: Terminal, tmp_path: Path
) -> None:
    me.ok("new")
    (tmp_path / "file").write_text("before")
    assert me.refused("replay", "--receipt", str(tmp_path / "absent" / "r")) == "FILE_UNUSABLE"
    assert me.refused("replay", "--receipt", str(tmp_path / "file" / "r")) == "FILE_UNUSABLE"
    assert me.refused("replay", "--receipt", str(tmp_path / ("r" * 300))) == "FILE_UNUSABLE"
    assert me.refused("replay", "--receipt", str(tmp_path)) == "ARGUMENT_INVALID"
    # What can be replaced is, at the end alone.
    assert me.refused("replay", "--receipt", str(tmp_path / "file")) == "NO_HOST"
    assert (tmp_path / "file").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir() if "file" in path.name] == ["file"]
