"""The data files of the wheel, as its build backend lists them: nothing is built."""

from pathlib import Path

import pytest
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel
from setuptools.dist import Distribution

from spec.vectors.make.__main__ import ALL

ROOT = Path(__file__).parent.parent


def test_the_wheel_has_the_vectors_and_the_marks_of_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit reads the vectors from its own package, where the repository has a link."""
    command = build_py(_distribution(monkeypatch))
    command.ensure_finalized()
    listed = {
        package: {str(Path(folder) / name) for name in names}
        for package, folder, _, names in command.get_data_files_without_manifest()
    }
    vectors = {f"antiphon/conformance/vectors/{name}" for name in (*ALL, "schema.json")}
    assert listed["antiphon.conformance"] == vectors
    for package in ("antiphon", "replica", "syncd", "model_host"):
        assert f"{package}/py.typed" in listed[package]
    assert not any(name.startswith(("spec", "tests")) for name in listed)


def test_type_checkers_find_an_editable_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The documented one is editable, and a finder in its .pth file is no path to them."""
    command = editable_wheel(_distribution(monkeypatch))
    command.ensure_finalized()
    chosen = command._select_strategy("antiphon", "0", tmp_path)
    assert type(chosen).__name__ == "_StaticPth"
    assert [Path(entry).resolve() for entry in chosen.path_entries] == [ROOT]


def _distribution(monkeypatch: pytest.MonkeyPatch) -> Distribution:
    monkeypatch.chdir(ROOT)
    distribution = Distribution()
    distribution.parse_config_files()
    return distribution
