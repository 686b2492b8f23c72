"""The seals that another process wrote with this host's key, whose answers are its own."""

import structlog

from model_host.errors import HostKeyShared
from replica.ids import ConversationId, EntryId, short
from replica.order import SealNode

log = structlog.get_logger()

FOREIGN_MAX = 1024
"""Seals that are kept in mind, the latest ones."""


class ForeignSeals:
    """Seals under this host's key that came while this process ran, and are not its own."""

    def __init__(self) -> None:
        """Start without any."""
        self._seals: dict[EntryId, None] = {}

    def note(self, conversation: ConversationId, node: SealNode) -> HostKeyShared:
        """Note a seal, and say so once; return the error of its request."""
        error = HostKeyShared(
            f"another process with this host's key sealed request {short(node.seal.request)}"
        )
        if node.id not in self._seals:
            log.error(
                "another process has this key",
                reason=error.reason,
                detail=error.detail,
                next_step=error.next_step,
                conversation=short(conversation),
            )
            self._seals[node.id] = None
            if len(self._seals) > FOREIGN_MAX:
                del self._seals[next(iter(self._seals))]
        return error

    def check(self, conversation: ConversationId, node: SealNode) -> None:
        """Raise HostKeyShared for the seal of another process."""
        if node.id in self._seals:
            raise self.note(conversation, node)
