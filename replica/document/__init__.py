"""The shared document: titles, branch names, annotations (spec/06).

`Document` brings pycrdt, and is loaded when it is first asked for.
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
