"""The counts of a hub, and their names at the Prometheus endpoint (docs/operating.md).

Pure. The drivers count; nothing here decides anything.
"""

from collections import Counter
from dataclasses import dataclass, field

from replica.errors import AntiphonError
from replica.link import Close, Fault, Message
from replica.measures import Histogram, Measure, Measures
from replica.refusals import (
    BlobTooLarge,
    CreditExceeded,
    FrameTooLarge,
    PendingFull,
    QuotaExceeded,
    RateLimited,
)
from syncd.hub import Hub

APPEND_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Bounds of the times of appends, in seconds: from less than an fsync to a stalled disk."""

QUOTA_REASONS = tuple(
    sorted(
        kind.reason
        for kind in (
            BlobTooLarge,
            CreditExceeded,
            FrameTooLarge,
            PendingFull,
            QuotaExceeded,
            RateLimited,
        )
    )
)
"""Reasons of refusals that a quota or a peer's credit causes (spec/11-limits)."""


@dataclass(slots=True)
class HubCounters:
    """Counts of events since start."""

    entries: int = 0
    """Entries admitted and durable."""
    bytes_in: int = 0
    bytes_out: int = 0
    append_s: Histogram = field(default_factory=lambda: Histogram(APPEND_S))
    """Seconds from the receipt of entries until they are durable and passed on."""
    commits_refused: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    """Refusals sent to peers, by reason."""

    def note_append(self, seconds: float) -> None:
        """Count the time of an append."""
        self.append_s.observe(seconds)

    def note_refusal(self, refusal: Fault | AntiphonError) -> None:
        """Count a refusal; its reason is one of this hub's own words."""
        self.faults[refusal.reason] += 1

    def note_written(self, message: Message | None, size_bytes: int) -> None:
        """Count a message written to a peer; None for a hint."""
        self.bytes_out += size_bytes
        fault = message.fault if isinstance(message, Close) else message
        if isinstance(fault, Fault):
            self.note_refusal(fault)


def measures(hub: Hub, counters: HubCounters) -> list[Measure]:
    """Return the measures of a hub at this moment."""
    made = Measures("antiphon_hub")
    made.gauge("links", "Links and watches that are open now.", len(hub.links))
    made.gauge("conversations", "Conversations held, in memory or stored.", hub.shelf.known)
    made.gauge("conversations_in_memory", "Conversations held in memory now.", len(hub.shelf))
    made.counter("entries_appended", "Entries admitted and durable.", counters.entries)
    made.histogram(
        "append_seconds",
        "Time from the receipt of entries until they are durable and passed on.",
        counters.append_s,
    )
    made.counter("received_bytes", "Bytes received in links, pushes and blobs.", counters.bytes_in)
    made.counter("sent_bytes", "Bytes sent in links, watches and blobs.", counters.bytes_out)
    made.counter(
        "faults", "Refusals sent to peers, by reason (spec/10).", dict(counters.faults), "reason"
    )
    quotas = {reason: counters.faults[reason] for reason in QUOTA_REASONS}
    made.counter("quota_refusals", "Of these, refusals that a quota causes.", quotas, "reason")
    made.counter(
        "commits_refused", "Group commits that the disk refused.", counters.commits_refused
    )
    return made.found
