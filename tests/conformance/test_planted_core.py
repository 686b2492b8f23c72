"""The kit finds mistakes that were put into our core on purpose."""

from antiphon.conformance.answers import answer
from antiphon.conformance.io import core_cases
from antiphon.conformance.questions import differences
from tests.conformance.planted_writers import accepts_keys_of_small_order


def test_a_core_that_proves_to_a_key_of_small_order_is_found() -> None:
    proofs = [case for case in core_cases(logs=0) if case.name.startswith("proof/")]
    with accepts_keys_of_small_order():
        wrong = [case.name for case in proofs if differences(case, answer(case.question))]
    assert wrong == ["proof/small-order"]
