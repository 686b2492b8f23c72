"""The shared document: titles, branch names, annotations (spec/06).

What imports pycrdt is loaded on first use.
"""

from typing import TYPE_CHECKING, Any

from replica.document.canonical import canonical_json, plain
from replica.document.fold import NotCausal, Update, client_id, entry_client
from replica.document.yjs import EMPTY_UPDATE

if TYPE_CHECKING:
    from replica.document.projection import Document, meta_set_by, project

__all__ = [
    "EMPTY_UPDATE",
    "Document",
    "NotCausal",
    "Update",
    "canonical_json",
    "client_id",
    "entry_client",
    "meta_set_by",
    "plain",
    "project",
]


_OF_PYCRDT = frozenset({"Document", "meta_set_by", "project"})


def __getattr__(name: str) -> Any:
    if name not in _OF_PYCRDT:
        raise AttributeError(name)
    from replica.document import projection

    return getattr(projection, name)
