"""The packages of a model host, as the metadata of the distribution names them."""

from pathlib import Path

import pytest

from replica.io.process.host_packages import missing_host_packages
from tests.support.distributions import distribution


def test_those_that_are_not_installed_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = ('gone-1.x>=2; extra == "host"', 'pytest; extra == "host"', 'gone-2; extra == "docs"')
    monkeypatch.syspath_prepend(distribution(tmp_path, *needs, "gone-3"))
    assert missing_host_packages() == ("gone-1.x",)
