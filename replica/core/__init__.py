"""The pure core of a replica: follows, own entries, acks of its hub (spec/04-link)."""

from replica.core.core import ReplicaCore
from replica.core.effects import ReplicaEffects
from replica.core.listed import Leaves
from replica.core.selection import FollowPolicy, Selection

__all__ = ["FollowPolicy", "Leaves", "ReplicaCore", "ReplicaEffects", "Selection"]
