"""A daemon's process, and the command that was typed for it."""

import pytest

from replica.io.process.daemon import TYPED_AS, typed_command


def test_a_command_that_runs_this_program_is_named_as_it_was_typed_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TYPED_AS, "antiphon hub serve")
    assert typed_command("python -m syncd") == "antiphon hub serve"
    assert typed_command("python -m syncd") == "python -m syncd"
