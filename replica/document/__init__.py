"""The shared document: titles, branch names, annotations (spec/06).

`Document` imports pycrdt, so it is loaded on first use.
"""

from typing import TYPE_CHECKING, Any

from replica.document.fold import Update
from replica.document.yjs import EMPTY_UPDATE

if TYPE_CHECKING:
    from replica.document.projection import Document

__all__ = ["EMPTY_UPDATE", "Document", "Update"]


def __getattr__(name: str) -> Any:
    if name != "Document":
        raise AttributeError(name)
    from replica.document.projection import Document

    return Document
