"""The recommended sampling comes from the model's files, else from a table by digest."""

import pytest

from model_host.io.fetch import MODELS
from model_host.refusals import SamplingInvalid
from model_host.sampling.recommendation import BY_WEIGHTS, recommended
from replica.ids import Digest
from replica.log import Sampling

UNKNOWN = Digest(bytes(32))


def test_the_table_knows_every_model_that_can_be_fetched() -> None:
    assert {model.sha256 for model in MODELS} == BY_WEIGHTS.keys()


def test_stated_numbers_win_over_the_table() -> None:
    (digest,) = BY_WEIGHTS
    known = Digest(bytes.fromhex(digest))
    assert recommended(known, {}) == BY_WEIGHTS[digest]
    assert recommended(known, {"temperature": 0.7, "top_k": 20}) == Sampling(
        temperature=0.7, top_k=20
    )


def test_a_model_that_states_nothing_and_is_unknown_has_no_recommendation() -> None:
    assert recommended(UNKNOWN, {}) is None


@pytest.mark.parametrize(
    "stated",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": float("inf")},
        {"temperature": 10**400},
        {"top_k": -(10**400)},
        {"top_p": 1.5},
        {"top_k": -1},
        {"temperature": "warm"},
        {"min_p": True},
        {"repetition_penalty": 1e-9},
    ],
)
def test_a_number_out_of_its_range_is_refused(stated: dict[str, object]) -> None:
    with pytest.raises(SamplingInvalid):
        recommended(UNKNOWN, stated)
