"""The host's drivers: requests, journals, checkpoint files, services."""

from typing import TYPE_CHECKING

from model_host.io import fetch

if TYPE_CHECKING:
    from model_host.io import command

__all__ = ["command", "fetch"]
