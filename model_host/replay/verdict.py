"""The verdict on a difference: does it show that the log was changed? Pure (spec/07-host §10)."""

from dataclasses import dataclass

from replica.conversation import Cause, Outcome
from replica.ids import Digest

_BY_WEIGHTS = (Cause.TOKEN, Cause.LOGPROBS, Cause.ENDING, Cause.REQUEST)
"""Differences that another profile explains: its weights and limits are others."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the tokens of an answer depend on, as this host has it."""

    profile: Digest
    numerics_class: Digest
    render_recipe_digest: Digest
    bitwise: bool
    vocabulary: int
    context_tokens: int
    """Most tokens of a context that the engine computes."""
    grammar_engine: str
    """Name and version."""


def verdict_on(cause: Cause, profile: Digest, here: Conditions) -> tuple[Outcome, Cause]:
    """Return the outcome for a difference in an answer of a profile, and the cause to report."""
    if cause in (Cause.PART_MISSING, Cause.OTHER_TEMPLATE, Cause.SAMPLING_UNKNOWN):
        return Outcome.UNDECIDED, cause
    if cause in _BY_WEIGHTS and profile != here.profile:
        return Outcome.UNDECIDED, Cause.OTHER_WEIGHTS
    if cause in (*_BY_WEIGHTS, Cause.CACHE) and not here.bitwise:
        return Outcome.UNDECIDED, Cause.NOT_BITWISE
    return Outcome.DIFFERS, cause
