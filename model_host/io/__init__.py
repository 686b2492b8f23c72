"""The host's drivers: requests, journals, checkpoint files, services."""

from typing import TYPE_CHECKING, Any

from model_host.io import fetch
from model_host.io.config import HostConfig

if TYPE_CHECKING:
    from model_host.io import command
    from model_host.io.server import serve

__all__ = [
    "HostConfig",
    "command",
    "fetch",
    "serve",
]


def __getattr__(name: str) -> Any:
    """Import `serve` at its first use, since it imports torch."""
    if name != "serve":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from model_host.io.server import serve

    globals()[name] = serve
    return serve
