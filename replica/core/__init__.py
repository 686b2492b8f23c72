"""The pure core of a replica: follows, own entries, acks of its hub (spec/04-link)."""

from replica.core.core import ReplicaCore
from replica.core.effects import ReplicaEffects

__all__ = ["ReplicaCore", "ReplicaEffects"]
