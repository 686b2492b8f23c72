"""The divergence suite: its files are those the recipes give, and each final log is one log."""

import json
from functools import cache
from typing import Any

import pytest

from antiphon.conformance.suites.__main__ import FOLDER
from antiphon.conformance.suites.divergences import divergences
from antiphon.conformance.suites.recording import Recording

NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@cache
def contents() -> dict[str, dict[str, Any]]:
    return {content["name"]: content for content in divergences()}


def test_the_files_are_what_the_recipes_yield() -> None:
    found = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
    assert found == contents(), "run python -m antiphon.conformance.suites"


@pytest.mark.parametrize("name", NAMES)
def test_each_step_ends_with_the_digest_of_its_log(name: str) -> None:
    recording = Recording(contents()[name])
    assert recording.steps
    for step in recording.steps:
        if step["do"] == "sync":
            log = recording.held(reversed(step["then"])).log
            assert log.digest.hex() == step["digest"]
            assert not log.pending


def test_another_seed_gives_other_conversations() -> None:
    others = {content["name"]: content["conversation"] for content in divergences(1)}
    assert others.keys() == contents().keys()
    assert all(others[name] != contents()[name]["conversation"] for name in others)
