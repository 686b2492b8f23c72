"""The lasting refusals of a hub in the store: what it takes nothing of ever again (LINK-9).

A command or program that starts while the hub is away reads here that a conversation was deleted,
or that its key was removed from it, which no entry tells a removed key.
"""

import asyncio
import json

from replica.conversation import EntryStore
from replica.errors import StoreError
from replica.ids import ConversationId, PublicKey, short
from replica.io.driver.saved_acks import SavedAcks
from replica.io.process import get_logger
from replica.io.store import ENDING
from replica.link import Fault

log = get_logger()

_NONE = b""
"""The value of a conversation that the hub takes again."""


class SavedEndings:
    """The lasting refusals of one hub, each under its conversation."""

    def __init__(self, store: EntryStore, acks: SavedAcks) -> None:
        """Use the refusals of the hub whose acks are `acks`."""
        self._store = store
        self._acks = acks
        self._loaded: dict[ConversationId, tuple[PublicKey, Fault]] = {}
        self._writing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Finish the writes."""
        await asyncio.gather(*self._writing)

    async def load(self, conversation: ConversationId) -> Fault | None:
        """Return the refusal of a conversation; None if there is none. Raises StoreError."""
        value = await self._store.get_meta(ENDING + conversation.hex(), is_derived=True)
        if value:
            self._loaded[conversation] = _decode(value)
        return self.of(conversation)

    def of(self, conversation: ConversationId) -> Fault | None:
        """Return the refusal of a loaded conversation; None if there is none."""
        hub, fault = self._loaded.get(conversation, (None, None))
        return fault if hub == self._acks.hub else None

    def note(self, conversation: ConversationId, fault: Fault) -> None:
        """Keep a refusal of the linked hub."""
        hub = self._acks.hub
        assert hub is not None, "who refuses was met before"
        fault = Fault(fault.reason, fault.detail)
        if self.of(conversation) != fault:
            self._loaded[conversation] = hub, fault
            self._put_later(conversation, _encode(hub, fault))

    def discard(self, conversation: ConversationId) -> None:
        """Drop the refusal of a conversation that the hub takes again."""
        if self.of(conversation) is not None:
            del self._loaded[conversation]
            self._put_later(conversation, _NONE)

    def forget(self, conversation: ConversationId) -> None:
        """Forget a conversation that left memory; its refusal stays in the store."""
        self._loaded.pop(conversation, None)

    def _put_later(self, conversation: ConversationId, value: bytes) -> None:
        writing = asyncio.create_task(self._put(conversation, value))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def _put(self, conversation: ConversationId, value: bytes) -> None:
        try:
            await self._store.put_meta(ENDING + conversation.hex(), value)
        except StoreError as error:  # the hub says it again
            log.warning(
                "a refusal was not saved",
                reason=error.reason,
                detail=error.detail,
                conversation=short(conversation),
            )


def _encode(hub: PublicKey, fault: Fault) -> bytes:
    record = {"hub": hub.hex(), "reason": fault.reason, "detail": fault.detail}
    return json.dumps(record).encode()


def _decode(value: bytes) -> tuple[PublicKey, Fault]:
    record = json.loads(value)
    return PublicKey(bytes.fromhex(record["hub"])), Fault(record["reason"], record["detail"])
