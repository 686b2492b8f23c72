"""Drivers of the kit: vector files, random logs, and the process that answers."""

from antiphon.conformance.io.core import VectorsMissing, core_cases, judge
from antiphon.conformance.io.process import Answerer, CommandUnusable

__all__ = ["Answerer", "CommandUnusable", "VectorsMissing", "core_cases", "judge"]
