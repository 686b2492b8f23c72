"""The shared document: titles, branch names, annotations (spec/06).

`Document` and `project` import pycrdt, so they are loaded on first use.
"""

from typing import TYPE_CHECKING, Any

from replica.document.canonical import canonical_json, plain
from replica.document.fold import NotCausal, Update, client_id, entry_client
from replica.document.yjs import EMPTY_UPDATE

if TYPE_CHECKING:
    from replica.document.projection import Document, project

__all__ = [
    "EMPTY_UPDATE",
    "Document",
    "NotCausal",
    "Update",
    "canonical_json",
    "client_id",
    "entry_client",
    "plain",
    "project",
]


def __getattr__(name: str) -> Any:
    if name not in ("Document", "project"):
        raise AttributeError(name)
    from replica.document import projection

    return getattr(projection, name)
