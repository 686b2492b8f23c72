"""Many runs computed at once: jobs, steps, guesses, restored pages, counts (spec/07-host §5)."""

from model_host.batching.audit import AuditCounters, Auditor, Choose
from model_host.batching.batcher import Batcher
from model_host.batching.counters import (
    AnswerCounters,
    BatchCounters,
    EngineState,
    RunView,
    Tier,
    added,
    measures,
)
from model_host.batching.job import Chosen, Computed, Ended, Event, Events, Found, Job, is_urgent
from model_host.batching.step_plan import SEQUENCES_MAX
from model_host.batching.warming import Warmed, warm_chunk

__all__ = [
    "SEQUENCES_MAX",
    "AnswerCounters",
    "AuditCounters",
    "Auditor",
    "BatchCounters",
    "Batcher",
    "Choose",
    "Chosen",
    "Computed",
    "Ended",
    "EngineState",
    "Event",
    "Events",
    "Found",
    "Job",
    "RunView",
    "Tier",
    "Warmed",
    "added",
    "is_urgent",
    "measures",
    "warm_chunk",
]
