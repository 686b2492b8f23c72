"""The sampling that a model's makers recommend (spec/07-host §1, HOST-70). Pure.

It is advice for clients and no part of the profile: a request states its own sampling, and
is answered by that.
"""

import sys
from collections.abc import Mapping
from dataclasses import fields

from model_host.refusals import SamplingInvalid
from model_host.sampling.state import check_request
from replica.ids import Digest, PublicKey
from replica.log import Request, Sampling

_NUMBERS = {
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "penalty_window": int,
}
assert _NUMBERS.keys() <= {field.name for field in fields(Sampling)}

BY_WEIGHTS = {
    # SmolLM2-135M-Instruct, Q4_1: its model card, which the file leaves out.
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53": Sampling(
        temperature=0.2, top_p=0.9
    ),
}
"""Recommendations for files that state none, by the SHA-256 of the weights."""


def recommended(weights_digest: Digest, stated: Mapping[str, object]) -> Sampling | None:
    """Return the recommendation for a model, None if there is none.

    `stated` has the numbers of the model's files by the names of `Sampling`. Raises
    SamplingInvalid if one of them is no number, or out of its range.
    """
    if not stated:
        return BY_WEIGHTS.get(weights_digest.hex())
    numbers: dict[str, float] = {}
    for name, value in stated.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SamplingInvalid(f"{name} is {value!r}, not a number.")
        if not abs(value) <= sys.float_info.max:
            raise SamplingInvalid(f"{name} is not a number that a double holds.")
        numbers[name] = _NUMBERS[name](value)
    sampling = Sampling(**numbers)  # type: ignore[arg-type]  # the table has their types
    check_request(Request(PublicKey(bytes(32)), sampling), 0)
    return sampling
