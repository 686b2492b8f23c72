"""The table of cases: names, titles, and what it refuses."""

import pytest

from antiphon.conformance.cases import Check, Table, Violation, check, equal
from antiphon.v1 import blob_pb2, log_pb2


def test_a_case_is_named_by_theme_and_function_and_titled_by_its_docstring() -> None:
    table: Table[None] = Table()

    @table.theme("push").shows("PROM-4", "LINK-24", needs="--restart")
    async def the_same_again(run: None) -> None:
        """An entry pushed twice is in the log once.

        More text.
        """

    (found,) = table
    assert found.name == "push/the-same-again"
    assert found.title == "An entry pushed twice is in the log once."
    assert (found.requirements, found.needs) == (("PROM-4", "LINK-24"), "--restart")


async def _nothing(run: None) -> None: ...


def test_a_name_stands_once_and_for_a_requirement() -> None:
    table: Table[None] = Table()
    table.add(Check("a/b", ("REC-1",), "", _nothing))
    with pytest.raises(ValueError, match="twice"):
        table.add(Check("a/b", ("REC-1",), "", _nothing))
    with pytest.raises(ValueError, match="no requirement"):
        table.add(Check("a/c", (), "", _nothing))
    assert len(table) == 1


def test_a_difference_is_a_violation_that_names_both_values() -> None:
    with pytest.raises(Violation, match="the reason is 'A', must be 'B'"):
        equal("A", "B", "the reason")
    with pytest.raises(Violation, match="no answer"):
        check(None, "no answer")
    equal(1, 1, "one")
    check(True, "")


def test_ids_are_shown_as_the_first_digits_of_their_hex() -> None:
    with pytest.raises(Violation, match=r"the ids is \[000000000000…, 'x'\], must be \[0101\]"):
        equal((bytes(32), "x"), [b"\x01\x01"], "the ids")


def test_a_message_is_shown_on_one_line_with_its_fields() -> None:
    entry = log_pb2.Entry(header=bytes(40), signature=b"\x01" * 64)
    wanted = r"is \[\{header: 000000000000…, signature: 010101010101…\}\], must be \[\]"
    with pytest.raises(Violation, match=wanted):
        equal([entry], [], "the entries")
    state = blob_pb2.StatResponse(committed_bytes=3, size_bytes=3)
    with pytest.raises(Violation, match=r"is \{committed_bytes: 3, size_bytes: 3\}, must be \{\}"):
        equal(state, blob_pb2.StatResponse(), "the state")
