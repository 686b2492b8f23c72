"""The outcome of a difference, by the conditions under which the answer was made."""

from dataclasses import replace

import pytest

from model_host.replay.verdict import verdict_on
from replica.conversation import Cause, Outcome
from replica.ids import Digest
from tests.model_host.replay.replayed import HERE

OTHER = Digest(b"o" * 32)


@pytest.mark.parametrize("cause", [Cause.TOKEN, Cause.LOGPROBS, Cause.ENDING, Cause.REQUEST])
def test_what_other_weights_explain_is_not_called_changed(cause: Cause) -> None:
    assert verdict_on(cause, HERE.profile, HERE) == (Outcome.DIFFERS, cause)
    assert verdict_on(cause, OTHER, HERE) == (Outcome.UNDECIDED, Cause.OTHER_WEIGHTS)
    inexact = replace(HERE, bitwise=False)
    assert verdict_on(cause, HERE.profile, inexact) == (Outcome.UNDECIDED, Cause.NOT_BITWISE)


@pytest.mark.parametrize("cause", [Cause.TEXT, Cause.USAGE, Cause.DRAFTS])
def test_what_follows_from_the_tokens_differs_under_any_conditions(cause: Cause) -> None:
    assert verdict_on(cause, OTHER, replace(HERE, bitwise=False)) == (Outcome.DIFFERS, cause)


@pytest.mark.parametrize("cause", [Cause.PART_MISSING, Cause.OTHER_TEMPLATE])
def test_what_is_missing_decides_nothing(cause: Cause) -> None:
    assert verdict_on(cause, HERE.profile, HERE) == (Outcome.UNDECIDED, cause)


def test_cached_pages_are_compared_by_an_engine_that_is_bitwise() -> None:
    assert verdict_on(Cause.CACHE, HERE.profile, HERE) == (Outcome.DIFFERS, Cause.CACHE)
    inexact = replace(HERE, bitwise=False)
    assert verdict_on(Cause.CACHE, HERE.profile, inexact) == (Outcome.UNDECIDED, Cause.NOT_BITWISE)
