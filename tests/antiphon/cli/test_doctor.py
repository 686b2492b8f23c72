"""`antiphon doctor` and rows in quarantine."""

import json
from pathlib import Path

import pytest

from antiphon.cli.commands import doctor
from model_host.io.fetch import MODELS
from replica.io.store.store import Store
from replica.refusals import StoreCorrupt
from tests.antiphon.cli.conftest import Terminal, World
from tests.support.files import flip_byte, query
from tests.support.modes import bound_by_modes, mode


@pytest.fixture
def talked(me: Terminal) -> str:
    """The id of a conversation of two turns."""
    conversation: str = me.record("new", "--system", "Be brief.")["conversation"]
    me.ok("send", "the first message")
    me.ok("send", "the second message")
    return conversation


def test_doctor_warns_of_a_row_in_quarantine_until_a_copy_came(
    world: World, me: Terminal, talked: str
) -> None:
    flip_byte(me.store_path, b"the second message")
    world.stop_host()
    world.stop_hub()
    assert me.run("verify").exit_code == 1
    assert "is in quarantine" in me.ok("doctor")
    world.start_hub()
    me.ok("log")
    assert query(me.store_path, "SELECT count(*) FROM quarantine") == [(1,)]
    assert "quarantine" not in me.ok("doctor")


def test_doctor_fails_on_a_model_whose_file_is_cut_off(
    me: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", str(tmp_path))
    assert model_of(me)["verdict"] == "warn"
    file = tmp_path / "models" / MODELS[0].file_name
    file.parent.mkdir()
    file.write_bytes(b"GGUF")
    cut = model_of(me)
    assert (cut["verdict"], "has 4 bytes" in cut["detail"]) == ("fail", True)
    assert "antiphon model pull" in cut["next_step"]
    with file.open("r+b") as whole:
        whole.truncate(MODELS[0].size_bytes)
    assert model_of(me)["verdict"] == "ok"


def test_doctor_fails_on_a_path_that_can_not_be_read(me: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(b"GGUF")
    (me.world.folder / "config.toml").write_text(f'model = "{file}"\n')
    with bound_by_modes(), mode(file, 0):
        found = model_of(me)
    assert (found["verdict"], found["detail"]) == ("fail", f"{file} can't be read")


def model_of(me: Terminal) -> dict[str, str]:
    lines = me.run("doctor", "--json").stdout.splitlines()
    (found,) = (one for one in map(json.loads, lines) if one.get("check") == "model")
    return found


def test_doctor_goes_on_behind_a_conversation_that_can_not_be_read(
    me: Terminal, talked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip_byte(me.store_path, b"the second message")
    assert me.run("verify").exit_code == 1

    async def broken(*_given: object, **_named: object) -> None:
        raise StoreCorrupt("a page is damaged")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "load", broken)
        result = me.run("doctor", "--json")
    found = {
        (f.get("check"), f.get("verdict")) for f in map(json.loads, result.stdout.splitlines())
    }
    assert result.exit_code == 1
    assert {("store", "fail"), ("hub", "ok"), ("host", "ok")} <= found


def test_doctor_says_why_torch_can_not_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that is there and broken is not called missing."""
    (tmp_path / "torch").mkdir()
    broken = tmp_path / "torch" / "__init__.py"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for line, detail in (
        ("raise ImportError('libgomp.so.1: cannot open')", "can't be imported: ImportError: lib"),
        ("import os; os._exit(3)", "can't be imported: exit status 3"),
        ("__version__ = '9'", "9"),
    ):
        broken.write_text(line)
        uncached = doctor._torch.__wrapped__
        assert uncached().detail.startswith(detail)
