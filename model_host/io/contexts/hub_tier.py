"""The settings and the counts of the hub tier (spec/08-checkpoint §9). Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HubTier:
    """The settings of uploads."""

    bytes_max: int
    """Bytes of all archives of this host at the hub; 0 for no uploads."""
    idle_s: float
    lifetime_s: float
    tokens_min: int


@dataclass(slots=True)
class HubTierCounters:
    """Counts since start."""

    uploaded: int = 0
    upload_failures: int = 0
    restored: int = 0
    """Archives stored on disk for a context to come."""
    refused: int = 0
    """Archives that failed a check."""
    missed: int = 0
    """Archives that the hub no longer had, or that did not come in time."""
    declined: int = 0
    """Archives not fetched, because computing was sooner."""
    removed: int = 0
