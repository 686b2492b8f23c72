"""Conversations of a hub: in memory, in its store alone, or in a fold that pauses."""

from syncd.shelves import records
from syncd.shelves.shelf import HubShelf, Known

__all__ = [
    "HubShelf",
    "Known",
    "records",
]
