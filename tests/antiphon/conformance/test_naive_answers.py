"""The naive answers are those of the vectors, and have the form of those of a core."""

import json

import pytest

from antiphon.conformance.answers import answer
from antiphon.conformance.io.core import VECTORS
from antiphon.conformance.io.random_logs import RandomLog
from antiphon.conformance.naive_answers import expected_fold, expected_order
from antiphon.conformance.questions import Case, cases_of, differences
from replica.conversation import Conversation
from replica.ids import ConversationId
from replica.log import Entry, Log, codec, entry_id


def test_what_the_naive_folds_say_of_a_new_log_is_what_the_core_says() -> None:
    log = RandomLog(1).log
    entries = [
        {"header": e.header_bytes.hex(), "signature": e.signature.hex(), "body": e.body.hex()}
        for e in log.entries.values()
        if e.body is not None
    ]
    given = {"conversation": next(iter(log.entries)).hex(), "entries": entries}
    found = answer({"ask": "fold", **given})
    expected = expected_fold(log)
    assert {name: found[name] for name in expected} == expected
    order = expected_order(log)
    assert order["seals"] == order["answers"] == order["sealable"] == {}
    assert [one["tip"] for one in order["tails"]] == [None]


def _cases(file: str) -> list[Case]:
    """Return the cases of a file in the first of the orders in which entries are given."""
    content = json.loads((VECTORS / f"{file}.json").read_text())
    return [case for case in cases_of(file, content) if case.name.endswith("-0")]


def _log(case: Case) -> Log:
    held = Conversation(ConversationId(bytes.fromhex(case.question["conversation"])))
    for raw in case.question["entries"]:
        header, signature = (bytes.fromhex(raw[name]) for name in ("header", "signature"))
        body = None if raw["body"] is None else bytes.fromhex(raw["body"])
        held.admit(Entry(header, signature, body, entry_id(header), codec.decode_header(header)))
    return held.log


@pytest.mark.parametrize("case", _cases("visibility"), ids=lambda case: case.name)
def test_the_naive_members_are_those_of_the_vectors(case: Case) -> None:
    asked = case.expected.keys() - {"membership_heads", "heads_to_join"}
    expected = {name: case.expected[name] for name in asked}
    found = Case(case.name, case.requirements, case.question, expected)
    assert differences(found, expected_fold(_log(case))) == []


@pytest.mark.parametrize("case", _cases("order"), ids=lambda case: case.name)
def test_the_naive_order_is_that_of_the_vectors(case: Case) -> None:
    found, expected = expected_order(_log(case)), case.expected
    for kind in ("seals", "answers", "sealable"):
        assert {i: found[kind].get(i) for i in expected[kind]} == expected[kind], kind
    tails = {tail["tip"]: tail for tail in found["tails"]}
    assert [tails.get(tail["tip"]) for tail in expected["tails"]] == expected["tails"]
