"""Reports: counts per requirement, and each failed case with its problems."""

import json
from html.parser import HTMLParser
from xml.etree import ElementTree

from antiphon.conformance.questions import Case
from antiphon.conformance.report import (
    Outcome,
    as_failed_questions,
    as_html,
    as_json,
    as_junit,
    as_text,
    by_requirement,
)

GOOD = Outcome(Case("order/chain", ("ORD-7", "PROM-1"), {}, {}), ())
BAD = Outcome(Case("wire/<group>", ("ENT-3",), {}, {}), ('reason is "A & B", must be null',))
OUTCOMES = [GOOD, GOOD, BAD]
LEFT_OUT = Outcome(Case("restart/acked", ("PROM-3",), {}, {}), (), 'no "--restart" given')


def test_a_case_counts_for_each_of_its_requirements() -> None:
    found = {r.id: (r.passed, len(r.failed)) for r in by_requirement(OUTCOMES)}
    assert found == {"ENT-3": (0, 1), "ORD-7": (2, 0), "PROM-1": (2, 0)}


def test_requirements_are_sorted_by_number() -> None:
    cases = [Outcome(Case("x", (f"ORD-{n}",), {}, {}), ()) for n in (10, 9, 2)]
    assert [r.id for r in by_requirement(cases)] == ["ORD-2", "ORD-9", "ORD-10"]


def test_the_text_names_failed_cases_and_their_problems() -> None:
    lines = as_text(OUTCOMES).splitlines()
    assert lines[0].split() == ["ENT-3", "1", "1", "of", "1", "FAILED"]
    assert lines[1].split() == ["ORD-7", "2", "passed"]
    assert lines[-3:] == [
        "FAILED wire/<group> (ENT-3)",
        '    reason is "A & B", must be null',
        "3 cases, 1 failed",
    ]


def test_json_has_the_same() -> None:
    found = json.loads(as_json(OUTCOMES))
    assert found["cases"] == 3
    assert found["failed"][0]["name"] == "wire/<group>"
    assert found["requirements"]["PROM-1"] == {
        "verdict": "passed", "passed": 2, "failed": 0, "not_run": 0, "reasons": []
    }  # fmt: skip


def test_junit_is_xml_with_a_case_each() -> None:
    suite = ElementTree.fromstring(as_junit(OUTCOMES))
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    failures = [case.findtext("failure") for case in suite]
    assert failures == [None, None, BAD.problems[0]]


def test_the_page_escapes_what_it_shows() -> None:
    page = as_html(OUTCOMES)
    HTMLParser().feed(page)
    assert "wire/&lt;group&gt;" in page
    assert "A &amp; B" in page
    assert "<group>" not in page


def test_a_requirement_without_a_case_that_was_run_is_not_applicable_with_the_reason() -> None:
    outcomes = [GOOD, LEFT_OUT]
    promise = by_requirement(outcomes)[-1]
    assert (promise.id, promise.verdict) == ("PROM-3", "not applicable")
    lines = as_text(outcomes).splitlines()
    assert lines[2].endswith('not applicable (1 not run: no "--restart" given)')
    assert lines[-1] == "2 cases, 0 failed, 1 not run"
    found = json.loads(as_json(outcomes))
    assert found["not_run"] == {"restart/acked": LEFT_OUT.not_run}
    assert found["requirements"]["PROM-3"]["reasons"] == [LEFT_OUT.not_run]
    suite = ElementTree.fromstring(as_junit(outcomes))
    assert suite.get("skipped") == "1"
    (skipped,) = suite.iter("skipped")
    assert skipped.get("message") == LEFT_OUT.not_run
    assert "not applicable" in as_html(outcomes)


def test_a_requirement_with_a_passed_case_and_one_not_run_has_passed() -> None:
    also = Outcome(Case("push/acked", ("PROM-3",), {}, {}), ())
    (promise,) = by_requirement([also, LEFT_OUT])
    assert (promise.verdict, promise.passed, len(promise.not_run)) == ("passed", 1, 1)


def test_characters_that_xml_has_not_are_replaced_in_junit() -> None:
    odd = Outcome(GOOD.case, ("detail \x1b[2J\x00 \ud800 é\t🙂",))
    (case,) = ElementTree.fromstring(as_junit([odd]))
    assert case.findtext("failure") == "detail �[2J� � é\t🙂"
    (case,) = ElementTree.fromstring(as_junit([Outcome(GOOD.case, (), "\x01")]))
    assert case[0].get("message") == "�"


def test_failed_questions_are_lines_with_both_answers() -> None:
    asked = Case("wire/1", ("ENT-3",), {"ask": "scan"}, {"reason": None})
    wrong = Outcome(asked, ("reason is missing, must be null",), answer={"number": 1})
    (line,) = as_failed_questions([GOOD, wrong]).splitlines()
    assert json.loads(line) == {
        "name": "wire/1", "requirements": ["ENT-3"], "problems": list(wrong.problems),
        "question": {"ask": "scan"}, "answer": {"number": 1}, "expected": {"reason": None},
    }  # fmt: skip
