"""The data files of the wheel, as its build backend lists them: nothing is built."""

from pathlib import Path

import pytest
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

from spec.vectors.make.__main__ import ALL

ROOT = Path(__file__).parent.parent


def test_the_wheel_has_the_vectors_and_the_marks_of_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit reads the vectors from its own package, where the repository has a link."""
    monkeypatch.chdir(ROOT)
    wheel = Distribution()
    wheel.parse_config_files()
    command = build_py(wheel)
    command.ensure_finalized()
    listed = {
        package: {f"{folder}/{name}" for name in names}
        for package, folder, _, names in command.get_data_files_without_manifest()
    }
    vectors = {f"antiphon/conformance/vectors/{name}" for name in (*ALL, "schema.json")}
    assert listed["antiphon.conformance"] == vectors
    for package in ("antiphon", "replica", "syncd", "model_host"):
        assert f"{package}/py.typed" in listed[package]
    assert not any(name.startswith(("spec", "tests")) for name in listed)
