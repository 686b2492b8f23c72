"""Losses of what was computed to others that need the memory. Pure."""

from model_host.errors import CacheBusy
from replica.limits import LOSSES_MAX


class Losses:
    """Counts the losses of one piece of work."""

    def __init__(self) -> None:
        """Start with none."""
        self._count = 0

    def note(self) -> None:
        """Count a loss. Raises CacheBusy for one too many."""
        self._count += 1
        if self._count > LOSSES_MAX:
            raise CacheBusy("Others need the memory of what is computed here.")
