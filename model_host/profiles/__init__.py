"""Profiles, and which of them the memory has room for (spec/07-host §1)."""

from model_host.profiles.memory_need import context_tokens_max, kv_bytes_min, weights_bytes
from model_host.profiles.profile import Profile
from model_host.profiles.residency import Residency, require_room

__all__ = [
    "Profile",
    "Residency",
    "context_tokens_max",
    "kv_bytes_min",
    "require_room",
    "weights_bytes",
]
