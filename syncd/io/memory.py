"""The memory of links and drafts, kept within the bounds of the accountant (LIM-10)."""

from collections.abc import Callable, Iterable

import structlog

from replica.errors import AntiphonError
from replica.ids import ConversationId, PublicKey, short
from replica.link import Link
from replica.refusals import QuotaExceeded
from syncd.bounds import Accountant, Holder
from syncd.hub import Hub
from syncd.links import LinkId

log = structlog.get_logger()

Drop = Callable[[AntiphonError], None]
"""Ends a stream at once, with a reason."""


class Memory:
    """The bytes of each link and of each conversation's drafts; ends those beyond a bound."""

    def __init__(self, hub: Hub, accountant: Accountant) -> None:
        """Use the caller's hub and accountant."""
        self._hub = hub
        self._accountant = accountant
        self._drops: dict[LinkId, tuple[PublicKey, Drop]] = {}
        self._queued: dict[LinkId, int] = {}
        self._channels: dict[LinkId, dict[ConversationId, int]] = {}
        self._of_channels: dict[LinkId, int] = {}

    def begin(self, link_id: LinkId, peer: PublicKey, drop: Drop) -> None:
        """Add a link; `drop` ends it if it occupies too much."""
        self._drops[link_id] = peer, drop
        self._channels[link_id] = {}

    def end(self, link_id: LinkId) -> None:
        """Remove a link."""
        for known in (self._drops, self._queued, self._channels, self._of_channels):
            known.pop(link_id, None)
        self._accountant.release(link_id)

    def note_queued(self, link_id: LinkId, size: int) -> None:
        """Note the bytes queued for a link's stream."""
        self._queued[link_id] = size
        self._note(link_id)

    def note_received(self, link_id: LinkId, link: Link, conversation: ConversationId) -> None:
        """Note the state of a link after a message about a conversation."""
        channels = self._channels.get(link_id)
        if channels is None:
            return
        before, size = channels.pop(conversation, 0), link.exchange.memory_bytes(conversation)
        if size:
            channels[conversation] = size
        self._of_channels[link_id] = self._of_channels.get(link_id, 0) + size - before
        self._note(link_id, link.intake.pending_bytes)
        self._note_drafts(conversation)

    def forget_drafts(self, conversations: Iterable[ConversationId]) -> None:
        """Note that conversations have left memory, and their drafts with them."""
        for conversation in conversations:
            self._accountant.release(("drafts", conversation))

    def _note(self, link_id: LinkId, pending_bytes: int | None = None) -> None:
        known = self._drops.get(link_id)
        if known is None:
            return
        if pending_bytes is None:
            link = self._hub.links.get(link_id)
            pending_bytes = link.intake.pending_bytes if link is not None else 0
        size = pending_bytes + self._queued.get(link_id, 0) + self._of_channels.get(link_id, 0)
        size += self._hub.connected.list_bytes(link_id)
        if self._accountant.hold(link_id, known[0], size):
            self._let_go()

    def _note_drafts(self, conversation: ConversationId) -> None:
        held = self._hub.shelf.get(conversation)
        creator = held.creator if held is not None else None
        size = sum(one.memory_bytes for one in held.drafts.values()) if held is not None else 0
        if creator is not None and self._accountant.hold(("drafts", conversation), creator, size):
            self._let_go()

    def _let_go(self) -> None:
        for holder in self._accountant.excess():
            self._drop(holder)

    def _drop(self, holder: Holder) -> None:
        if isinstance(holder, tuple):
            _, conversation = holder
            held = self._hub.shelf.find(conversation)
            if held is not None:
                held.drafts.clear()
            log.warning("drafts dropped, too much memory", conversation=short(conversation))
            return
        peer, drop = self._drops[holder]  # type: ignore[index]  # the other holders are links
        log.warning("link ended, too much memory", key=short(peer))
        drop(QuotaExceeded("this link, or all links of this key, occupy too much memory here"))
