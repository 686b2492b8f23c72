"""Every requirement has a case of the kit, or says why not."""

from spec import coverage


def test_every_requirement_has_a_case_or_says_why_not() -> None:
    cases = coverage.shown()
    without = [
        requirement
        for requirement, entry in coverage.requirements().items()
        if requirement not in cases and not entry.get("unseen")
    ]
    assert without == []


def test_every_case_shows_requirements_that_exist() -> None:
    assert coverage.shown().keys() <= coverage.requirements().keys()


def test_the_table_has_a_line_for_each_requirement() -> None:
    lines = list(coverage.table())
    assert len(lines) == len(coverage.requirements())
    (ack,) = [line for line in lines if line.startswith("LINK-15 ")]
    assert "; hub " in ack or "  hub " in ack
    assert "test_an_ack_names_entries_persisted_before" in ack
    (damage,) = [line for line in lines if line.startswith("LINK-63 ")]
    assert f"{coverage.NOT_VISIBLE}: of a damaged store" in damage
