"""`antiphon doctor` and rows in quarantine."""

import json
from pathlib import Path

import pytest

from antiphon.cli.commands import doctor
from model_host.io.fetch import MODELS
from replica.io import HubKeyUnknown
from replica.io.store import Store
from replica.refusals import StoreCorrupt
from tests.antiphon.cli.conftest import Terminal, World
from tests.support.files import flip_byte, query
from tests.support.modes import bound_by_modes, mode

# One process imports torch, in two seconds; test_run.py has `doctor` start what it starts.
pytestmark = [pytest.mark.xdist_group("doctor"), pytest.mark.usefixtures("forked_models")]


TALKED = (
    ("new", "--system", "Be brief."),
    ("send", "the first message"),
    ("send", "the second message"),
)


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


def test_doctor_prints_the_next_step_where_the_hub_is_away(world: World, me: Terminal) -> None:
    world.stop_host()
    world.stop_hub()
    shown = me.ok("doctor")
    assert "warn hub" in shown
    assert "antiphon up" in shown


def test_doctor_fails_on_a_key_that_others_may_read(me: Terminal) -> None:
    me.ok("key", "show")
    (me.data_dir / "identity.key").chmod(0o644)
    result = me.run("doctor", "--json")
    assert result.exit_code == 1
    verdicts = {
        (f.get("check"), f.get("verdict")) for f in map(json.loads, result.stdout.splitlines())
    }
    assert ("key", "fail") in verdicts


def found(me: Terminal, check: str, *arguments: str) -> dict[str, str]:
    """Return what doctor finds of one check, whether others fail or not."""
    lines = me.run("doctor", "--json", *arguments).stdout.splitlines()
    (finding,) = (one for one in map(json.loads, lines) if one.get("check") == check)
    return finding


def test_doctor_says_what_to_do_where_a_start_of_the_hub_does_not_help(me: Terminal) -> None:
    hub = found(me, "hub", "--hub-address", "192.0.2.1:7411")
    assert (hub["verdict"], hub["next_step"]) == ("fail", HubKeyUnknown.next_step)
    assert "HUB_KEY_UNKNOWN" in hub["detail"]


@pytest.mark.parametrize(
    ("model", "verdict", "words"),
    [("no-such-model", "warn", "'no-such-model' is neither a known model nor a file or folder"),
     ("SmolLM2-135M-Instruct@q4", "ok", "SmolLM2-135M-Instruct "),
     (f"{__file__}@bf16", "ok", f"{__file__} (a path)")],
)  # fmt: skip
def test_doctor_looks_for_the_model_of_the_settings(
    me: Terminal, model: str, verdict: str, words: str
) -> None:
    (me.world.folder / "config.toml").write_text(f'model = "{model}"\n')
    finding = found(me, "model")
    assert (finding["verdict"], finding["detail"][: len(words)]) == (verdict, words)


def test_a_hub_with_another_key_is_an_error_and_not_offline(world: World, me: Terminal) -> None:
    me.ok("new")
    world.stop_host()
    world.stop_hub()
    (world.folder / "hub" / "identity.key").unlink()
    world.start_hub()
    result = me.run("doctor")
    assert result.exit_code == 1
    assert "PEER_IDENTITY_CHANGED" in result.stdout
