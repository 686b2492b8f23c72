"""Replays: a conversation computed again from its log, its answers checked (spec/07-host §10)."""

from model_host.replay.case import Collected, collect
from model_host.replay.computation import Computation, Result, Work
from model_host.replay.findings import receipt_of
from model_host.replay.judges import Judges, Part, parts_of, unjudged
from model_host.replay.pages import ReplayPages
from model_host.replay.passes import Pass
from model_host.replay.rendering import RenderedCase, render_cases
from model_host.replay.replay import Replay
from model_host.replay.verdict import Conditions

__all__ = [
    "Collected",
    "Computation",
    "Conditions",
    "Judges",
    "Part",
    "Pass",
    "RenderedCase",
    "Replay",
    "ReplayPages",
    "Result",
    "Work",
    "collect",
    "parts_of",
    "receipt_of",
    "render_cases",
    "unjudged",
]
