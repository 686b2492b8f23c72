"""The forms name what the questions of the vectors give, and what their answers are judged by."""

import json
import re

from antiphon.conformance.answers import answer
from antiphon.conformance.forms import FORMS
from antiphon.conformance.questions import cases_of
from spec.vectors.make.__main__ import FOLDER


def test_every_kind_of_question_has_a_form_with_its_fields() -> None:
    asked = set()
    for path in FOLDER.glob("*.json"):
        for case in cases_of(path.stem, json.loads(path.read_text())):
            form = FORMS[case.question["ask"]]
            asked.add(case.question["ask"])
            assert case.question.keys() - {"ask"} <= _words(form.given), case.name
            assert case.expected.keys() <= _words(form.answer), case.name
    assert asked == FORMS.keys()


def test_a_kind_without_a_form_is_unknown() -> None:
    assert answer({"ask": "weather"}) == {"unknown": True}


def _words(text: str) -> set[str]:
    return {*re.findall(r"\w+", text)}
