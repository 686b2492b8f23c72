"""A user's side of a conversation with a real hub and host, for tests."""

from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, EntryId, PublicKey
from replica.io.replica import Replica
from replica.link.events import DraftReceived, Event
from replica.log.body import (
    Body,
    Cancel,
    Generation,
    Genesis,
    Grant,
    Member,
    Message,
    Request,
    Role,
    Sampling,
    Speaker,
    Text,
    text_of,
)
from replica.log.entry import Conflict, Entry
from replica.order.tail import frontier

ANSWER_TIMEOUT_S = 60.0
GREEDY = Sampling()


def key_of(number: int) -> Ed25519PrivateKey:
    """Return the same key for the same number."""
    return Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)


class Talk:
    """One conversation of one replica with one host."""

    def __init__(self, replica: Replica, conversation: ConversationId, host: PublicKey) -> None:
        self.replica = replica
        self.id = conversation
        self.host = host
        self.drafted: dict[EntryId, bytearray] = {}
        self.drafted_tokens: dict[EntryId, list[int]] = {}
        replica.listen(self._receive)

    @classmethod
    async def begin(cls, replica: Replica, host: PublicKey) -> "Talk":
        """Create a conversation with `host` in it."""
        conversation = await replica.create(Genesis((replica.public,)))
        grant = Member(Grant(host, Role.HOST))
        await replica.append(conversation, grant, parents=(EntryId(conversation),))
        return cls(replica, conversation, host)

    @property
    def held(self) -> Conversation:
        return self.replica.shelf[self.id]

    def _receive(self, event: Event) -> None:
        if isinstance(event, DraftReceived):
            shown = self.drafted.setdefault(event.draft.request, bytearray())
            assert event.draft.byte_offset == len(shown)
            shown += event.draft.data
            self.drafted_tokens.setdefault(event.draft.request, []).extend(event.draft.token_ids)

    async def add(self, body: Body, *, at: EntryId | None = None) -> Entry:
        """Append to the newest branch, or directly after `at` on its basis."""
        tips = self.held.order.tips()
        tip = tips[-1] if tips else None
        if at is not None:
            basis = self.held.log.entries[at].header.basis
            return await self.replica.append(
                self.id, body, parents=(at,), basis=basis, conflict=Conflict.FORK
            )
        parents = frontier(self.held.order, tip)
        basis = tip.id if tip else None
        return await self.replica.append(self.id, body, parents=parents, basis=basis)

    async def say(self, text: str, speaker: Speaker = Speaker.USER) -> Entry:
        """Append a message."""
        return await self.add(Message(speaker, (Text(text),)))

    async def request(
        self, *, at: EntryId | None = None, sampling: Sampling = GREEDY, tokens: int = 16, **more
    ) -> EntryId:
        """Append a request; return its id."""
        body = Request(self.host, sampling, output_tokens_max=tokens, **more)
        return (await self.add(body, at=at)).id

    async def regenerate(self, request: EntryId, **more) -> EntryId:
        """Ask again for the answer to the same message, on the same basis; `more` changes it."""
        entry = self.held.log.entries[request]
        body = replace(self.held.log.body(request), **more)
        again = await self.replica.append(
            self.id, body, parents=entry.header.parents, basis=entry.header.basis,
            conflict=Conflict.FORK,
        )  # fmt: skip
        return again.id

    async def cancel(self, request: EntryId) -> None:
        """Append a CANCEL of a request."""
        basis = self.held.log.entries[request].header.basis
        await self.replica.append(self.id, Cancel(), parents=(request,), basis=basis)

    async def answer(self, request: EntryId) -> Generation:
        """Wait for the answer."""
        await self.replica.wait_for(
            lambda: self.held.order.answer(request) is not None, ANSWER_TIMEOUT_S
        )
        found = self.held.order.answer(request)
        assert found is not None, f"no answer within {ANSWER_TIMEOUT_S} s"
        return found

    async def ask(self, text: str, **more) -> tuple[EntryId, Generation]:
        """Append a message and a request, and wait for the answer."""
        await self.say(text)
        request = await self.request(**more)
        return request, await self.answer(request)

    def shown(self, request: EntryId) -> str:
        """Return the text drafted for a request so far."""
        return self.drafted.get(request, bytearray()).decode()

    def tokens(self, request: EntryId) -> list[int]:
        """Return the tokens drafted for a request so far."""
        return self.drafted_tokens.get(request, [])


__all__ = ["GREEDY", "Talk", "key_of", "text_of"]
