"""The answers of a model host about itself: metrics, running requests, pages.

The messages of HostService as values, checked where their parts must fit together.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from antiphon.v1 import host_pb2 as pb
from replica.ids import EntryId, PublicKey
from replica.measures import Histogram, Value
from replica.refusals import FrameMalformed


@dataclass(frozen=True, slots=True)
class RunningRequest:
    """A request that a host is answering."""

    conversation: bytes
    request: bytes
    author: bytes
    owner: bytes
    prompt_tokens: int
    found_tokens: int
    computed_tokens: int
    output_tokens: int
    age_s: float
    first_token_s: float
    """0 before the first token."""
    failure: str = ""
    """The reason for which it does not go on; it is tried again."""

    @property
    def tokens_per_s(self) -> float:
        """The rate of its answer since the first token; 0 if it is unknown."""
        seconds = self.age_s - self.first_token_s
        if not self.first_token_s or seconds <= 0 or self.output_tokens < 2:
            return 0.0
        return (self.output_tokens - 1) / seconds


@dataclass(frozen=True, slots=True)
class HostSample:
    """The state of a host at one moment."""

    host: PublicKey
    is_operator: bool
    metrics: Mapping[str, Mapping[str, Value]]
    """By name, then by the value of the label, which is empty for a metric without one."""
    requests: tuple[RunningRequest, ...]

    def number(self, name: str, label: str = "") -> float | None:
        """Return a number; None if the host does not give it, perhaps only not to this key."""
        value = self.metrics.get(f"antiphon_host_{name}", {}).get(label)
        return value if isinstance(value, int | float) else None

    def distribution(self, name: str) -> Histogram | None:
        """Return a distribution; None if the host does not give it."""
        value = self.metrics.get(f"antiphon_host_{name}", {}).get("")
        return value if isinstance(value, Histogram) else None


@dataclass(frozen=True, slots=True)
class PagedEntry:
    """The tokens of an entry, by where their keys and values are found first."""

    entry: EntryId
    cached_tokens: int
    shared_tokens: int
    stored_tokens: int
    absent_tokens: int

    @property
    def tokens(self) -> int:
        """The number of its tokens."""
        return self.cached_tokens + self.shared_tokens + self.stored_tokens + self.absent_tokens


@dataclass(frozen=True, slots=True)
class ContextPages:
    """The current context of a branch on a host."""

    entries: tuple[PagedEntry, ...]
    stored_tokens: int
    """Tokens of its beginning that a checkpoint holds, in memory or not."""
    seal: EntryId | None

    @property
    def tokens(self) -> int:
        """The number of its tokens."""
        return sum(entry.tokens for entry in self.entries)


def sample_from_pb(raw: pb.StatsResponse) -> HostSample:
    """Return the answer of Stats. Raises FrameMalformed."""
    return HostSample(
        PublicKey(raw.host_key),
        raw.operator,
        {m.name: {sample.label: _value(sample) for sample in m.samples} for m in raw.metrics},
        tuple(
            RunningRequest(
                one.conversation,
                one.request,
                one.author,
                one.owner,
                one.prompt_tokens,
                one.found_tokens,
                one.computed_tokens,
                one.output_tokens,
                one.age_ms / 1000,
                one.first_token_ms / 1000,
                one.failure,
            )
            for one in raw.requests
        ),
    )


def _value(raw: pb.MetricSample) -> Value:
    if not raw.counts:
        return raw.value
    ascends = all(low < high for low, high in zip(raw.bounds, raw.bounds[1:], strict=False))
    if len(raw.counts) != len(raw.bounds) + 1 or not ascends:
        raise FrameMalformed("the buckets of a metric don't fit together")
    return Histogram.of(raw.bounds, raw.counts, raw.value)


def pages_from_pb(raw: pb.PagesResponse) -> ContextPages:
    """Return the answer of Pages."""
    return ContextPages(
        tuple(
            PagedEntry(
                EntryId(one.entry),
                one.cached_tokens,
                one.shared_tokens,
                one.stored_tokens,
                one.absent_tokens,
            )
            for one in raw.entries
        ),
        raw.stored_tokens,
        EntryId(raw.seal) if raw.seal else None,
    )
