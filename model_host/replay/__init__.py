"""Replays: a conversation computed again from its log, its answers checked (spec/07-host §10)."""

from model_host.replay.case import Case, Collected, collect
from model_host.replay.check import AnswerCheck
from model_host.replay.computation import Computation, Result, Work
from model_host.replay.findings import receipt_of
from model_host.replay.judges import Part, parts_of, unjudged
from model_host.replay.pages import Compared, Computed, ReplayPages
from model_host.replay.passes import Pass, Span, passes_of
from model_host.replay.rendering import RenderedCase, render_cases
from model_host.replay.replay import MakeRun, Replay
from model_host.replay.verdict import Conditions

__all__ = [
    "AnswerCheck",
    "Case",
    "Collected",
    "Compared",
    "Computation",
    "Computed",
    "Conditions",
    "MakeRun",
    "Part",
    "Pass",
    "RenderedCase",
    "Replay",
    "ReplayPages",
    "Result",
    "Span",
    "Work",
    "collect",
    "parts_of",
    "passes_of",
    "receipt_of",
    "render_cases",
    "unjudged",
]
