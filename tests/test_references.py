"""References that name something are kept, and each kind of wrong one is reported."""

import pytest

from tests.references import Targets, decisions_of, sections_of

TARGETS = Targets(
    chapters={"03-order": {"1", "3", "3.1"}, "04-link": {"1", "10"}, "13-level-1": {"5"}},
    requirements={"ORD-1", "ORD-13", "LINK-4"},
    decisions={"D1", "D12"},
)


@pytest.mark.parametrize(
    "text",
    [
        "(spec/03-order §3)",
        "spec/03-order.md §3.1 and spec/04-link",
        "03-order §1, §3; [04 §10](04-link.md)",
        "`03-order.md` §1 to §3",
        "spec/04-link §1, ORD-13, LINK-4",
        "spec/13-level-1 §5, [13 §5](13-level-1.md)",
        "DECISIONS D12, [DECISIONS.md](DECISIONS.md) D1",
        "RFC 8032 §7.1, sqlite.org/fileformat.html §9",
        "SHA-256, UTF-8, 20-minute walks, 2026-01-05, 12 of 60",
    ],
)
def test_a_reference_that_names_something_is_right(text: str) -> None:
    assert TARGETS.broken(text) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("spec/03-order §4", ["03-order §4"]),
        ("spec/03-order §1, §5", ["03-order §5"]),
        ("03 §3.2", ["03-order §3.2"]),
        ("04-link.md §2", ["04-link §2"]),
        ("spec/05-reconcile", ["spec/05-reconcile"]),
        ("spec/03-link §1", ["spec/03-link §1"]),
        ("see §3", ["§3"]),
        ("ORD-14 and ORD-1", ["ORD-14"]),
        ("DECISIONS D3", ["DECISIONS D3"]),
        ("[DECISIONS](DECISIONS.md) D3", ["DECISIONS.md) D3"]),
    ],
)
def test_a_reference_that_names_nothing_is_reported(text: str, wrong: list[str]) -> None:
    assert TARGETS.broken(text) == wrong


def test_in_a_chapter_a_section_alone_is_its_own() -> None:
    assert TARGETS.broken("as §10 says", within="04-link") == []
    assert TARGETS.broken("as §3 says", within="04-link") == ["§3"]
    assert TARGETS.broken("as 03 §3 says", within="04-link") == []


def test_sections_are_numbered_headings_but_for_the_title() -> None:
    assert sections_of("# 03 Order\n\n## 1 Example\n\n### 1.2 More\n\n## Other\n") == {"1", "1.2"}


def test_decisions_are_headings_of_the_third_level() -> None:
    assert decisions_of("# Decisions\n\n### D7 One log\n\n## D8\n\nD9\n") == {"D7"}
