"""`antiphon chat`, on a terminal and as lines."""

from antiphon.cli.chat import chat

__all__ = [
    "chat",
]
