"""The counts of a host, and their names at the Prometheus endpoint (docs/operating.md).

Pure. The engines' threads and the event loop count in plain numbers, which are added up when
somebody asks.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, TypeVar

from model_host.batching.job import Found
from model_host.kv import PoolCounters
from replica.ids import ConversationId, EntryId
from replica.log import FinishReason, Usage, split_finish_detail
from replica.measures import Histogram, Measure, Measures

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Counts = TypeVar("Counts", bound="DataclassInstance")

STEP_S = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Bounds of the times of steps, in seconds."""
FIRST_TOKEN_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Bounds of the times to first tokens, in seconds."""
TOKEN_S = (0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5)
"""Bounds of the times per output token, in seconds."""


@dataclass(slots=True)
class BatchCounters:
    """Counts of the batcher since start."""

    steps: int = 0
    rows: int = 0
    restores: int = 0
    fallbacks: int = 0
    """Checkpoints that were not used because they failed a check."""
    declined: int = 0
    """Checkpoints that were not used because computing is sooner."""
    preemptions: int = 0
    sequences: int = 0
    """Sequences of the last step."""
    cached_tokens: int = 0
    shared_tokens: int = 0
    """Tokens found only in pages of other conversations (PAGE-8)."""
    restored_tokens: int = 0
    prefilled_tokens: int = 0
    """Rows of prompts computed; after a preemption once more."""
    output_tokens: int = 0
    guesses: int = 0
    """Rows computed for guessed tokens."""
    guesses_accepted: int = 0
    step_s: Histogram = field(default_factory=lambda: Histogram(STEP_S))

    def note_found(self, found: Found) -> None:
        """Count the part of a context that was found."""
        self.cached_tokens += found.cached_tokens
        self.shared_tokens += found.shared_tokens
        self.restored_tokens += found.restored_tokens

    def note_step(
        self, seconds: float, *, sequences: int, rows: int, prompt_rows: int, guesses: int
    ) -> None:
        """Count a step of some sequences; `rows` are all, those of prompts and guesses included."""
        self.guesses += guesses
        self.steps += 1
        self.rows += rows
        self.prefilled_tokens += prompt_rows
        self.sequences = sequences
        self.step_s.observe(seconds)


def added(one: Counts, other: Counts) -> Counts:
    """Return the sums of the fields of two objects that count."""
    sums = {f.name: getattr(one, f.name) + getattr(other, f.name) for f in fields(one)}
    return replace(one, **sums)


@dataclass(slots=True)
class AnswerCounters:
    """Counts of answered requests since start."""

    finished: Counter[str] = field(default_factory=Counter)
    """Generations appended, by finish reason."""
    refused: Counter[str] = field(default_factory=Counter)
    """Requests refused before they began, by reason."""
    first_token_s: Histogram = field(default_factory=lambda: Histogram(FIRST_TOKEN_S))
    token_s: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))

    @property
    def generations(self) -> int:
        """The number of generations appended."""
        return self.finished.total()

    @property
    def refusals(self) -> int:
        """The number of requests refused."""
        return self.refused.total()

    def note_generation(self, finish: FinishReason, usage: Usage) -> None:
        """Count an answer; one without a token of its own has no times."""
        self.finished[finish.name.lower()] += 1
        if usage.first_token_us:
            self.first_token_s.observe(usage.first_token_us / 1e6)
        if usage.output_tokens > 1 and usage.decode_us:
            self.token_s.observe(usage.decode_us / 1e6 / (usage.output_tokens - 1))

    def note_refusal(self, finish: FinishReason, detail: str) -> str:
        """Count a refusal, whose detail begins with its reason (`finish_detail`); return that."""
        is_refused = finish is FinishReason.REFUSED
        reason = split_finish_detail(detail)[0] if is_refused else finish.name
        self.refused[reason] += 1
        return reason


@dataclass(frozen=True, slots=True)
class Tier:
    """A place where keys and values are kept."""

    name: str
    bytes: int
    evictions: int
    """Slabs in memory; conversations on disk; archives at the hub."""
    tokens: int | None = None
    """Positions it holds; None where that is not counted."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """The counts of the engine's thread at one moment."""

    batch: BatchCounters
    pool: PoolCounters
    tiers: tuple[Tier, ...]
    checkpoints: int
    checkpoint_failures: int
    corrupt: int
    """Files of checkpoints that failed a check and were removed."""
    is_idle: bool
    archives: dict[str, int] = field(default_factory=dict)
    """Archives at the hub, by the outcome."""


@dataclass(frozen=True, slots=True)
class RunView:
    """The progress of a run, in tokens and seconds."""

    conversation: ConversationId
    request: EntryId
    prompt_tokens: int
    found_tokens: int
    """Found in memory or restored; those of others' pages are not counted (PAGE-8)."""
    computed_tokens: int
    output_tokens: int
    age_s: float
    first_token_s: float | None
    failure: str = ""
    """The reason for which it does not go on; it is tried again."""


def measures(
    state: EngineState,
    answers: AnswerCounters,
    *,
    running: int,
    waiting: int,
    conversations: Mapping[str, int],
    unstored: Mapping[str, int],
    limits: Iterable[tuple[str, int]],
    for_operator: bool,
) -> list[Measure]:
    """Return the measures of a host at one moment; `limits` are the bytes of each tier.

    `conversations` are those that the hub lists: open, or left out for a reason; `unstored`
    those that the store can't read or write, by its reason.

    Others than operators get none that show what is cached (HOST-81).
    """
    made = Measures("antiphon_host")
    batch = state.batch
    made.gauge("requests_running", "Requests being answered now.", running)
    made.gauge("requests_waiting", "Requests waiting now.", waiting)
    _add_conversations(made, conversations, unstored)
    made.counter(
        "requests_finished", "Answers appended, by finish reason.", answers.finished, "reason"
    )
    made.counter(
        "requests_refused", "Requests refused, by reason (spec/10).", answers.refused, "reason"
    )
    made.gauge(
        "batch_sequences", "Sequences of the last step; 0 while nothing is computed.",
        0 if state.is_idle else batch.sequences,
    )  # fmt: skip
    made.histogram("step_seconds", "Time of a step.", batch.step_s)
    made.histogram(
        "first_token_seconds", "Time from the start of an answer to its first token.",
        answers.first_token_s,
    )  # fmt: skip
    made.histogram(
        "output_token_seconds", "Mean time of an answer's tokens after the first.", answers.token_s
    )
    made.counter("tokens", "Tokens by source.", _tokens(batch, for_operator), "source")
    made.counter(
        "guesses", "Guessed tokens, by outcome.",
        {
            "accepted": batch.guesses_accepted,
            "rejected": batch.guesses - batch.guesses_accepted,
        },
        "outcome",
    )  # fmt: skip
    made.counter("preemptions", "Runs that gave up their pages for others.", batch.preemptions)
    if for_operator:
        _add_derived_state(made, state, dict(limits))
    return made.found


def _add_conversations(
    made: Measures, conversations: Mapping[str, int], unstored: Mapping[str, int]
) -> None:
    made.gauge(
        "conversations", "Conversations that the hub lists: open, or why not.",
        dict(conversations), "state",
    )  # fmt: skip
    made.gauge(
        "conversations_unstored",
        "Conversations that the store can't read or write now, by reason (spec/10).",
        dict(unstored), "reason",
    )  # fmt: skip


def _tokens(batch: BatchCounters, for_operator: bool) -> dict[str, int]:
    tokens = {
        "cached": batch.cached_tokens,
        "restored": batch.restored_tokens,
        "prefilled": batch.prefilled_tokens,
        "output": batch.output_tokens,
    }
    if for_operator:
        return tokens | {"shared": batch.shared_tokens}
    return tokens | {"prefilled": batch.prefilled_tokens + batch.shared_tokens}


def _add_derived_state(made: Measures, state: EngineState, limits: dict[str, int]) -> None:
    tiers = state.tiers
    # Beside the tokens prefilled, it would tell how many of these were in others' pages.
    made.counter("step_rows", "Tokens computed in steps.", state.batch.rows)
    made.counter("prefix_lookups", "Contexts looked up in memory.", state.pool.lookups)
    made.counter("prefix_hits", "Contexts of which memory held a prefix.", state.pool.hits)
    made.gauge("tier_bytes", "Bytes of keys and values.", {t.name: t.bytes for t in tiers}, "tier")
    made.gauge("tier_limit_bytes", "The most bytes that a tier may hold.", limits, "tier")
    made.gauge(
        "tier_tokens", "Positions of keys and values.",
        {t.name: t.tokens for t in tiers if t.tokens is not None}, "tier",
    )  # fmt: skip
    made.counter(
        "tier_evictions",
        "Evictions: slabs in memory, conversations on disk, archives at the hub.",
        {t.name: t.evictions for t in tiers}, "tier",
    )  # fmt: skip
    made.counter("restores", "Contexts lengthened from a checkpoint.", state.batch.restores)
    made.counter(
        "restore_fallbacks", "Contexts computed because a checkpoint failed a check.",
        state.batch.fallbacks,
    )  # fmt: skip
    made.counter(
        "restores_declined", "Checkpoints not used because computing was faster.",
        state.batch.declined,
    )  # fmt: skip
    made.counter("checkpoints_written", "Checkpoints written.", state.checkpoints)
    made.counter(
        "checkpoint_failures", "Checkpoints that could not be written.", state.checkpoint_failures
    )
    made.counter(
        "hub_archives", "Archives of checkpoints at the hub, by outcome.", state.archives, "outcome"
    )
    made.counter("checkpoints_corrupt", "Checkpoints removed: a check failed.", state.corrupt)
