"""One run of the suite: the hub under test, and what each case begins with."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import grpc

from antiphon.conformance.cases import NotApplicable, Table, check, equal, wrong
from antiphon.conformance.histories import History
from antiphon.conformance.io.calls import END, PATIENCE_S, Caller, RawLink, awaiting, noted
from antiphon.conformance.writers import Writer
from antiphon.v1 import sync_pb2 as pb
from replica import limits
from replica.ids import ConversationId, Digest, EntryId
from replica.link import Ack, Entries, Fault, Hello, Message, Open, Opened, Welcome, fault_from_pb
from replica.log import Entry, entry_to_pb

HELLO = Hello((1,))
NOTHING = Digest(bytes(32))
RESTART_SECONDS_MAX = 60.0

Restart = Callable[[], Awaitable[None]]
"""Kills the hub and starts it again at its address."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Times in seconds, and sizes; a test of the kit reduces them on both sides."""

    beat: float = limits.HEARTBEAT_S
    write_timeout: float = limits.WRITE_TIMEOUT_S
    keepalive: float = 10.0
    heads: int = limits.HEADS_PER_FRAME_MAX
    blob_lifetime: float = 3.0
    blob_deletion: float = 120.0
    """The time that a hub has to delete a blob that has expired (CKPT-22)."""


@dataclass(slots=True)
class HubRun:
    """The hub under test, and the options of the command."""

    address: str
    restart: Restart | None = None
    vouched: Writer | None = None
    """A host that the hub's operator vouches for."""
    wait_s: float = 90.0
    """The longest time that a case waits for a time of the protocol to pass."""
    scale: Scale = field(default_factory=Scale)
    _callers: list[Caller] = field(default_factory=list)

    def new(self, label: str = "") -> History:
        """Begin a conversation with keys that this hub has never met."""
        return History(os.urandom(16) + label.encode())

    def allow(self, seconds: float) -> float:
        """Return a time to wait. Raises NotApplicable if the run does not allow it."""
        if seconds > self.wait_s:
            raise NotApplicable(
                f"it takes {seconds:.0f} s by the hub's times: give --wait {seconds:.0f}"
            )
        return seconds

    async def enter(self, writer: Writer, address: str = "") -> Caller:
        """Connect and prove a writer's key."""
        caller = Caller(address or self.address, writer.key)
        self._callers.append(caller)
        return await caller.enter()

    async def push_all(self, history: History) -> Caller:
        """Connect as the owner, push all entries, and return the owner."""
        owner = await self.enter(history.owner)
        await push(owner, *history.entries)
        return owner

    async def end(self) -> None:
        """End all connections."""
        await asyncio.gather(*(caller.close() for caller in self._callers))
        self._callers.clear()

    async def kill(self) -> None:
        """Kill the hub and start it again. Raises NotApplicable without a way to."""
        if self.restart is None:
            raise NotApplicable("no way to kill and restart the hub was given: --restart COMMAND")
        await self.restart()
        prober = Caller(self.address, Writer(os.urandom(16)).key)
        try:
            async with asyncio.timeout(RESTART_SECONDS_MAX):
                await _until_it_answers(prober)
        except TimeoutError:
            wrong(f"the hub does not answer {RESTART_SECONDS_MAX:.0f} s after its restart")
        finally:
            await prober.close()


async def _until_it_answers(prober: Caller) -> None:
    while True:
        try:
            await prober.enter()
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.1)
        else:
            return


_M = TypeVar("_M")

TABLE: Table[HubRun] = Table()
"""The cases of the suite; each module of this package adds a theme."""


# --- steps that many cases have in common ------------------------------------------------


async def outcomes(
    caller: Caller, entries: Iterable[Entry], conversation: bytes = b""
) -> list[pb.PushOutcome]:
    """Push entries; return their outcomes. Waits once where the hub is behind."""
    request = pb.PushRequest(conversation=conversation, entries=map(entry_to_pb, entries))
    response: pb.PushResponse = await caller.call("Push", request)
    return list(response.outcomes)


async def push(caller: Caller, *entries: Entry) -> None:
    """Push entries, all of which must be durable."""
    found = await outcomes(caller, entries)
    equal([o.id for o in found], [e.id for e in entries], "the ids of the outcomes")
    refused = [fault_from_pb(o.fault).reason for o in found if not o.durable]
    equal(refused, [], "the list of refusals of a Push")


async def reasons(caller: Caller, *entries: Entry, conversation: bytes = b"") -> list[str]:
    """Push entries; return the reasons of the refused ones, "" for durable ones."""
    found = await outcomes(caller, entries, conversation)
    return ["" if o.durable else o.fault.reason for o in found]


async def greet(caller: Caller, hello: Hello = HELLO) -> RawLink:
    """Begin a link, and read its Welcome."""
    link = caller.link()
    await link.send(hello)
    await link.next_of(Welcome)
    return link


async def opened(
    caller: Caller, history: History, *, drafts: bool = False, hello: Hello = HELLO
) -> RawLink:
    """Begin a link and open a conversation whose log at the hub is that of the history."""
    link = await greet(caller, hello)
    await link.send(Open(history.id, history.digest, (), drafts))
    answer = await link.next_of(Opened)
    equal(answer.equal, True, "Opened.equal for the digest of the entries that were pushed")
    return link


async def synced(caller: Caller, history: History, *entries: Entry) -> RawLink:
    """Begin a link, open the conversation, send entries, and wait for all acks."""
    link = await opened(caller, history)
    await link.send(Entries(history.id, entries))
    await acked(link, *entries)
    return link


async def acked(link: RawLink, *entries: Entry) -> list[Message]:
    """Read until each entry is acked; return all that came. Raises Violation for a Fault."""
    by_id = {entry.id: entry for entry in entries}
    open_ids, found = set(by_id), list[Message]()
    while open_ids:
        with awaiting(f"Ack of {len(open_ids)} more of {len(by_id)} entries"):
            message = await link.read()
        if message is None:
            wrong(f"the link ended before the Ack {link.reason}")
        found.append(message)
        if isinstance(message, Fault):
            wrong(f"an entry that must be acked was refused: {message.reason}")
        if isinstance(message, Ack):
            for tip in message.ids:
                _discard_lane(open_ids, by_id, tip)
    return found


def _discard_lane(open_ids: set[EntryId], by_id: dict[EntryId, Entry], tip: EntryId) -> None:
    """Remove an acked entry and its `prev`-ancestors."""
    at: EntryId | None = tip
    while at is not None:
        open_ids.discard(at)
        at = by_id[at].header.prev if at in by_id else None


def entries_of(messages: Iterable[Message]) -> list[EntryId]:
    """Return the ids of the entries in some messages, in order."""
    return [e.id for m in messages if isinstance(m, Entries) for e in m.entries]


def the_last(kind: type[_M], messages: Iterable[Message]) -> _M:
    """Return the last of some messages that is of a kind. Raises Violation without one."""
    found = [m for m in messages if isinstance(m, kind)]
    check(bool(found), f"no {kind.__name__} came before the Pong")
    return found[-1]


def faults_of(messages: Iterable[Message]) -> list[Fault]:
    """Return the faults among some messages."""
    return [m for m in messages if isinstance(m, Fault)]


def the_fault(messages: Iterable[Message]) -> Fault:
    """Return the only fault among some messages. Raises Violation for another number."""
    found = faults_of(messages)
    equal(len(found), 1, "the number of faults")
    return found[0]


async def resolve(caller: Caller, history: History, entry_id: bytes) -> pb.ResolveResponse:
    """Ask for the fate of an entry."""
    request = pb.ResolveRequest(conversation=history.id, id=entry_id)
    response: pb.ResolveResponse = await caller.call("Resolve", request)
    return response


async def fetch(
    caller: Caller, conversation: ConversationId, **wanted: object
) -> list[pb.FetchResponse]:
    """Return the responses of a Fetch."""
    request = pb.FetchRequest(conversation=conversation, **wanted)  # type: ignore[arg-type]
    stream = caller.sync.Fetch(request, metadata=caller.metadata, timeout=PATIENCE_S)
    found: list[pb.FetchResponse] = []
    while (response := await noted("Fetch", stream.read())) is not END:
        found.append(response)
    return found
