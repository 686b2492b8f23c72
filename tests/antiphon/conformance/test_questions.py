"""Cases from vector files: their requirements, their orders, and how answers are compared."""

import json
import tomllib
from pathlib import Path

import pytest

from antiphon.conformance.questions import ORDERS, Case, arranged, cases_of, differences
from spec.vectors.make.__main__ import FOLDER

CORE = (
    "admission", "bundle", "call-key", "comparison", "digest", "document", "document-rules",
    "drafts", "entry", "order", "proof", "salt", "signature", "visibility", "wire",
)  # fmt: skip


@pytest.mark.parametrize("file", CORE)
def test_every_file_of_the_core_has_cases_that_name_requirements(file: str) -> None:
    listed = tomllib.loads((Path("spec") / "requirements.toml").read_text())
    cases = list(cases_of(file, json.loads((FOLDER / f"{file}.json").read_text())))
    assert len({case.name for case in cases}) == len(cases) > 0
    for case in cases:
        assert case.expected
        assert case.requirements
        assert set(case.requirements) <= listed.keys()


def test_files_of_hosts_have_no_cases() -> None:
    assert list(cases_of("draw", {})) == []


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 40])
def test_each_order_holds_every_entry_once(count: int) -> None:
    entries = [{"number": i} for i in range(count)]
    orders = [arranged(entries, order) for order in range(ORDERS)]
    for order in orders:
        assert sorted(order, key=lambda e: e["number"]) == entries
    if count > 3:
        assert len({str(order) for order in orders}) == ORDERS


def test_only_what_is_expected_is_compared() -> None:
    case = Case("name", (), {}, {"reason": None, "ids": ["a"]})
    assert differences(case, {"reason": None, "ids": ["a"], "more": 1}) == []
    assert differences(case, {"ids": []}) == [
        "reason is missing, must be null", 'ids is [], must be ["a"]',
    ]  # fmt: skip


def test_true_is_no_number() -> None:
    case = Case("name", (), {}, {"received": [True], "count": 1})
    assert differences(case, {"received": [True], "count": 1}) == []
    assert differences(case, {"received": [1], "count": True}) == [
        "received is [1], must be [true]", "count is true, must be 1",
    ]  # fmt: skip
