"""A user's side of a conversation with a real hub and host, for benchmarks and tests."""

from dataclasses import replace
from typing import Any, Self

from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId, PublicKey
from replica.io import Replica
from replica.log import (
    Body,
    Conflict,
    Entry,
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
)
from replica.order import frontier

ANSWER_TIMEOUT_S = 60.0
REACHED_TIMEOUT_S = 120.0
GREEDY = Sampling()


class Talk:
    """One conversation of one replica with one host."""

    def __init__(self, replica: Replica, conversation: ConversationId, host: PublicKey) -> None:
        self.replica = replica
        self.id = conversation
        self.host = host

    @classmethod
    async def begin(cls, replica: Replica, host: PublicKey) -> Self:
        """Create a conversation with `host` in it."""
        conversation = await replica.create(Genesis((replica.public,)))
        grant = Member(Grant(host, Role.HOST))
        await replica.append(conversation, grant, parents=(EntryId(conversation),))
        return cls(replica, conversation, host)

    @property
    def held(self) -> Conversation:
        return self.replica.shelf[self.id]

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
        self,
        *,
        at: EntryId | None = None,
        sampling: Sampling = GREEDY,
        tokens: int = 16,
        **more: Any,
    ) -> EntryId:
        """Append a request; return its id."""
        body = Request(self.host, sampling, output_tokens_max=tokens, **more)
        return (await self.add(body, at=at)).id

    async def regenerate(self, request: EntryId, **more: Any) -> EntryId:
        """Ask again for the answer to the same message, on the same basis; `more` changes it."""
        header, body = self.held.log.entries[request].header, self.held.order.request(request)
        assert body is not None, "a request that may be answered"
        again = await self.replica.append(
            self.id, replace(body, **more), parents=header.parents, basis=header.basis,
            conflict=Conflict.FORK,
        )  # fmt: skip
        return again.id

    async def answer(self, request: EntryId, timeout_s: float = ANSWER_TIMEOUT_S) -> Generation:
        """Wait for the answer."""
        await self.replica.wait_for(lambda: self.held.order.answer(request) is not None, timeout_s)
        found = self.held.order.answer(request)
        assert found is not None, f"no answer within {timeout_s} s"
        return found

    async def ask(self, text: str, **more: Any) -> tuple[EntryId, Generation]:
        """Append a message and a request, and wait for the answer."""
        await self.say(text)
        request = await self.request(**more)
        return request, await self.answer(request)

    async def reach(self, other: Replica) -> None:
        """Wait until another replica holds all of the conversation."""

        def has_all() -> bool:
            held = other.shelf.get(self.id)
            return held is not None and held.log.digest == self.held.log.digest

        if not await other.wait_for(has_all, REACHED_TIMEOUT_S):
            raise RuntimeError("the other replica lacks a part of the log")
