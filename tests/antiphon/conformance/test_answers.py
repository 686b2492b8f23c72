"""This implementation answers the questions of the vectors as they require.

tests/test_vectors.py asks those of the files that requirements name.
"""

import json

import pytest

from antiphon.conformance.answers import answer
from antiphon.conformance.questions import cases_of, differences
from spec.vectors.make.__main__ import FOLDER

FILES = ("bundle", "comparison", "document", "document-rules", "drafts", "proof", "salt")


@pytest.mark.parametrize("file", FILES)
def test_every_case_of_a_file_is_answered_as_the_vectors_require(file: str) -> None:
    wrong = {}
    for case in cases_of(file, json.loads((FOLDER / f"{file}.json").read_text())):
        if found := differences(case, answer(case.question)):
            wrong[case.name] = found
    assert wrong == {}


def test_a_question_of_another_kind_is_unknown() -> None:
    assert answer({"ask": "weather"}) == {"unknown": True}
