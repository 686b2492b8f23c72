"""The host's drivers: requests, journals, checkpoint files, services."""

from model_host.io import fetch
from model_host.io.config import HostConfig
from model_host.io.server import serve

__all__ = [
    "HostConfig",
    "fetch",
    "serve",
]
