"""What a daemon sets before its imports, its operator may set otherwise."""

import os

import pytest

from replica.imports.io import without_grpc_lines


@pytest.mark.parametrize(("given", "left"), [(None, "NONE"), ("DEBUG", "DEBUG")])
def test_the_lines_of_grpc_are_off_unless_the_environment_wants_them(
    monkeypatch: pytest.MonkeyPatch, given: str | None, left: str
) -> None:
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    if given is not None:
        monkeypatch.setenv("GRPC_VERBOSITY", given)
    without_grpc_lines()
    assert os.environ["GRPC_VERBOSITY"] == left
    monkeypatch.delenv("GRPC_VERBOSITY")
