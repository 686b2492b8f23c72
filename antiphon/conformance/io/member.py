"""A member on a raw link: it sends what a case says, and keeps all that the hub sends."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.conformance.io.calls import PATIENCE_S, TICKET_METADATA, Caller, RawLink
from antiphon.v1 import sync_pb2 as pb
from replica import limits
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, PublicKey
from replica.io import open_channel, rpc, status
from replica.link import Hello, HostInfo, Message, Ping, Welcome, decode_frame, fault_from_pb
from replica.log import Entry, entry_to_pb

PING_S = 15.0


class Overdue(Exception):
    """The hub sent nothing that was waited for in time."""


class Member(Caller):
    """A caller whose calls end with typed errors, and that runs one link at a time."""

    @classmethod
    @asynccontextmanager
    async def join(
        cls, address: str, key: Ed25519PrivateKey, hub_key: PublicKey | None = None
    ) -> AsyncIterator["Member"]:
        """Authenticate at a hub. Raises AntiphonError."""
        connection = await open_channel(address)
        member = cls(address, key, connection.grpc)

        async def authenticate(request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
            answer: pb.AuthenticateResponse = await rpc.typed(member.authenticate(request))
            return answer

        try:
            member.hub_key, ticket = await rpc.obtain_ticket(
                authenticate, key, hub_key, connection.certificate_digest
            )
            member.metadata = ((TICKET_METADATA, ticket),)
            yield member
        finally:
            await member.close()

    async def call(self, name: str, request: Any) -> Any:
        """Call a unary method of SyncService or BlobService. Raises AntiphonError."""
        return await rpc.typed(super().call(name, request))

    async def push(
        self, conversation: ConversationId, entries: Iterable[Entry]
    ) -> dict[EntryId, str]:
        """Append entries; return the reason of each that is refused."""
        request = pb.PushRequest(conversation=conversation, entries=map(entry_to_pb, entries))
        response = await self.call("Push", request)
        refused = (o for o in response.outcomes if not o.durable)
        return {EntryId(o.id): fault_from_pb(o.fault).reason for o in refused}

    @asynccontextmanager
    async def linked(self, host: HostInfo | None = None) -> AsyncIterator["KeptLink"]:
        """Run a link that has been greeted."""
        link = KeptLink(self.link().call)
        reader = asyncio.create_task(link.read_all(), name="frames of the hub")
        pinger = asyncio.create_task(link.ping(), name="heartbeats")
        try:
            await link.send(Hello((limits.VERSION,), host=host))
            link.welcome = await link.first(Welcome)
            yield link
        finally:
            for task in (pinger, reader):
                task.cancel()
            link.cancel()
            await asyncio.gather(pinger, reader, return_exceptions=True)


class KeptLink(RawLink):
    """A link whose messages are kept in `inbox` and given to `react` as they arrive."""

    def __init__(self, call: Any) -> None:
        """Use `Member.linked`."""
        super().__init__(call)
        self.inbox: list[Message] = []
        self.ended_with: AntiphonError | None = None
        self.has_ended = False
        self.welcome: Welcome | None = None
        self.react: Callable[[Message], None] = lambda _message: None
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()

    async def send(self, *messages: Message) -> None:
        """Send messages, in order; a link that has ended loses them."""
        async with self._writing:
            await super().send(*messages)

    async def read_all(self) -> None:
        """Read until the hub ends the stream."""
        try:
            while (data := await self.read_bytes(None)) is not None:
                message = decode_frame(data, "to_client")
                self.inbox.append(message)
                self.react(message)
                self._news.set()
        except grpc.aio.AioRpcError as error:
            self.ended_with = status.from_rpc_error(error)
        finally:
            self.has_ended = True
            self._news.set()

    async def ping(self) -> None:
        """Send heartbeats, so that a long case keeps its link."""
        while True:
            await asyncio.sleep(PING_S)
            await self.send(Ping(int.from_bytes(os.urandom(4), "little")))

    async def until(self, condition: Callable[[], bool], what: str, limit_s: float = 0) -> None:
        """Wait until a condition on the received messages holds. Raises Overdue."""
        patience_s = limit_s or PATIENCE_S
        try:
            async with asyncio.timeout(patience_s):
                while not condition():
                    if self.has_ended:
                        error = self.ended_with
                        reason = error.reason if error is not None else "no reason"
                        raise Overdue(f"the hub ended the link ({reason}) instead of {what}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise Overdue(f"{what} did not come within {patience_s:.0f} s") from None

    async def until_silence(
        self,
        condition: Callable[[], bool],
        what: str,
        *,
        heard: Callable[[], int],
        silence_s: float,
        limit_s: float,
    ) -> None:
        """Wait until a condition holds, as long as `heard` grows, and `limit_s` at most.

        Raises Overdue where it does not grow within `silence_s`.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + limit_s
        while not condition():
            if loop.time() >= give_up_at:
                raise Overdue(f"{what} did not come within {limit_s:.0f} s")
            before = heard()

            def is_news(before: int = before) -> bool:
                return condition() or heard() > before

            await self.until(is_news, f"{what}, or a further draft,", silence_s)

    async def first(self, kind: type[Any], since: int = 0) -> Any:
        """Return the first message of a type behind the first `since` ones. Raises Overdue."""

        def found() -> list[Message]:
            return [m for m in self.inbox[since:] if isinstance(m, kind)]

        await self.until(lambda: bool(found()), kind.__name__)
        return found()[0]
