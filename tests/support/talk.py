"""A user's side of a conversation with a real hub and host, who also reads the drafts."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bench import talk
from bench.talk import GREEDY
from replica.ids import ConversationId, EntryId, PublicKey
from replica.io.driver.replica import Replica
from replica.link.events import DraftReceived, Event
from replica.log.body import Cancel, text_of


def key_of(number: int) -> Ed25519PrivateKey:
    """Return the same key for the same number."""
    return Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)


class Talk(talk.Talk):
    """One conversation of one replica with one host, and what is drafted in it."""

    def __init__(self, replica: Replica, conversation: ConversationId, host: PublicKey) -> None:
        super().__init__(replica, conversation, host)
        self.drafted: dict[EntryId, bytearray] = {}
        self.drafted_tokens: dict[EntryId, list[int]] = {}
        replica.listen(self._receive)

    def _receive(self, event: Event) -> None:
        if isinstance(event, DraftReceived):
            shown = self.drafted.setdefault(event.draft.request, bytearray())
            assert event.draft.byte_offset == len(shown)
            shown += event.draft.data
            self.drafted_tokens.setdefault(event.draft.request, []).extend(event.draft.token_ids)

    async def cancel(self, request: EntryId) -> None:
        """Append a CANCEL of a request."""
        basis = self.held.log.entries[request].header.basis
        await self.replica.append(self.id, Cancel(), parents=(request,), basis=basis)

    def shown(self, request: EntryId) -> str:
        """Return the text drafted for a request so far."""
        return self.drafted.get(request, bytearray()).decode()

    def tokens(self, request: EntryId) -> list[int]:
        """Return the tokens drafted for a request so far."""
        return self.drafted_tokens.get(request, [])


__all__ = ["GREEDY", "Talk", "key_of", "text_of"]
