"""Hosts that sign other answers than they computed, or compute otherwise: does a replay find it?"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from model_host.engine.torch_engine import TorchEngine
from model_host.generation import gather, plan
from model_host.io.profiles.offers import Offer
from model_host.rendering import Contexts
from replica.conversation import Author, Conversation, extend_digest, sealable, start_digest
from replica.ids import SALT_BYTES, EntryId
from replica.io import Replica, import_entries
from replica.log import Body, Conflict, Entry, Generation, Seal

Lie = Callable[[Generation], Generation]


class Liar:
    """Answers requests of a conversation again, with the keys of user and host.

    Each lie is on a branch of its own. The host must be stopped before they are published:
    else it answers these requests itself.
    """

    def __init__(
        self, replica: Replica, held: Conversation, host: Ed25519PrivateKey, offer: Offer
    ) -> None:
        """Lie in the name of `host` to the user of `replica`."""
        self._replica = replica
        self._offer = offer
        self._contexts = Contexts()
        self._held = Conversation(held.id)
        self._host, self._user = Author(host, 77), Author(replica.key, 78)
        self._entries: list[Entry] = []
        with self._held.batch:
            for entry in held.log.in_send_order(held.log.entries):
                self._held.admit(entry)

    def answer(
        self,
        request: EntryId,
        lie: Lie,
        *,
        seal: Callable[[Seal], Seal] = lambda seal: seal,
        streamed: bool = True,
        **changes: Any,
    ) -> EntryId:
        """Ask a request again, with `changes`, and lie about the answer to it; return the lie.

        The draft digest is that of the lie, if it is `streamed`.
        """
        order, log = self._held.order, self._held.log
        body, header = order.request(request), log.entries[request].header
        honest = order.answer(request)
        assert body is not None and honest is not None, "an answered request"
        again = replace(body, **changes)
        asked = self._write(self._user, again, header.parents, header.basis, Conflict.FORK)
        ready = sealable(self._held, asked)
        assert ready is not None, "its turn is now"
        gathered = gather(self._held, ready, self._contexts)
        made = plan(gathered, profile=self._offer.profile, renderer=self._offer.renderer)
        sealed = self._write(self._host, seal(made.seal), (asked,), made.seal.prev_seal)
        told = lie(honest)
        if streamed:
            stream = start_digest(asked, told.run)
            told = replace(told, draft_digest=extend_digest(stream, told.token_ids))
        return self._write(self._host, told, (sealed,), sealed)

    def _write(
        self,
        author: Author,
        body: Body,
        parents: tuple[EntryId, ...],
        basis: EntryId | None,
        conflict: Conflict = Conflict.QUEUE,
    ) -> EntryId:
        entry = author.write(
            self._held, body, parents=parents, basis=basis, conflict=conflict,
            salt=os.urandom(SALT_BYTES), time_ms=1,
        )  # fmt: skip
        self._held.admit(entry)
        self._entries.append(entry)
        return entry.id

    async def publish(self) -> None:
        """Bring the lies to the user's replica, and so to the hub and the host."""
        if self._entries:
            await import_entries(self._replica, tuple(self._entries))
        if not await self._replica.wait_synced(self._held.id, 120):
            raise RuntimeError("the hub does not take the lies")


def with_token(answer: Generation, index: int, token_id: int) -> Generation:
    """Return an answer with another token at an index, and all else as it was."""
    ids = (*answer.token_ids[:index], token_id, *answer.token_ids[index + 1 :])
    return replace(answer, token_ids=ids)


def with_other_weights(engine: TorchEngine) -> TorchEngine:
    """Return an engine whose first two layers have changed places."""
    first, second, *rest = engine.model.layers
    model = replace(engine.model, layers=(second, first, *rest))
    return replace(engine, model=model, file=replace(engine.file, sha256=b"w" * 32))


def with_another_template(engine: TorchEngine) -> TorchEngine:
    """Return an engine whose template has another system prompt."""
    template = engine.file.template.replace("You are a helpful", "You are an unhelpful")
    return replace(engine, file=replace(engine.file, template=template))
