"""The engine behind one thread: contexts in memory, restored or computed (spec/07-host §5).

Everything that touches torch runs here, one call at a time; the event loop
only waits. What is in memory is looked for first, then on disk; whatever is
missing is computed from the tokens, and the output is the same either way.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import structlog

from model_host.cache import CachePool, KVCache
from model_host.engine_api import Engine
from model_host.errors import CheckpointError, CheckpointMissing
from model_host.runner import Logits
from replica.ids import ConversationId, EntryId, short

log = structlog.get_logger()


@dataclass(slots=True)
class Counters:
    """What happened to derived state since start."""

    restores: int = 0
    fallbacks: int = 0
    checkpoints: int = 0
    checkpoint_failures: int = 0
    generations: int = 0
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """How much of a context was there already, in tokens."""

    cached_tokens: int
    restored_tokens: int


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A context ready to continue: logits after its last token, and what was found of it."""

    logits: Logits
    found: Found
