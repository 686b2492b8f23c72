"""Calls without a link: rights, queries, Push."""

from syncd.calls import pushed, queries
from syncd.calls.pushed import Warned
from syncd.calls.pushing import Outcomes, Pushing
from syncd.calls.queries import LaneRange, Right

__all__ = [
    "LaneRange",
    "Outcomes",
    "Pushing",
    "Right",
    "Warned",
    "pushed",
    "queries",
]
