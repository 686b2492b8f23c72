"""The hub's drivers: services, store, clock."""

from syncd.io.config import HubConfig
from syncd.io.server import serve

__all__ = [
    "HubConfig",
    "serve",
]
