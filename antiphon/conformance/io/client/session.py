"""One case of the client suite: a scripted hub, a recorder of entries, and the client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from antiphon.conformance.cases import NotApplicable, Table, Violation, check
from antiphon.conformance.io.client.forms import checked
from antiphon.conformance.io.client.hub import ScriptedHub
from antiphon.conformance.suites.recording import Json, Recorder
from replica.conversation import Conversation
from replica.link import Credit, Message, Pong
from replica.log import Entry, Role

PATIENCE_S = 20.0
"""Longest wait for something that a client must do, in seconds."""
POLL_S = 0.02
ME = "me"
"""The name of the client's key."""


class Asked(Protocol):
    """The client under test."""

    async def answer(self, command: Json) -> Json:
        """Perform a command of `spec/conform-client.md`."""


class Session:
    """The client, connected to a hub that is right until the case changes it."""

    def __init__(self, client: Asked, hub: ScriptedHub, name: str, address: str) -> None:
        """Use `Clients.session`."""
        self.hub = hub
        self.entries = Recorder(0, f"client {name}")
        self.base = self.entries.begin(me=Role.WRITER, eve=Role.WRITER, hal=Role.HOST)
        self._client = client
        self.address = address

    @property
    def id(self) -> str:
        """The conversation's id, in hex."""
        return self.entries.conversation.hex()

    @property
    def held(self) -> Conversation:
        """The hub's conversation."""
        found = self.hub.core.shelf.get(self.entries.conversation)
        assert found is not None, "the hub holds it"
        return found

    def entry(self, label: str) -> Entry:
        """Return an entry of the recorder."""
        return self.entries.entries[label]

    def all(self, *labels: str) -> list[Entry]:
        """Return the first entries, and those with these labels."""
        return [self.entry(label) for label in (*self.base, *labels)]

    def bring(self, *labels: str) -> None:
        """Let the authors of entries append them at the hub."""
        for label in labels:
            entry = self.entry(label)
            self.hub.bring(entry.header.author, self.entries.conversation, entry)

    # --- commands ---------------------------------------------------------------------

    async def ask(self, do: str, **fields: Any) -> Json:
        """Let the client perform a command. Raises Violation where it fails."""
        answer = await self.tries(do, **fields)
        if "error" in answer and do != "status":
            raise Violation(f"{do} fails: {answer['error']}")
        return answer

    async def tries(self, do: str, **fields: Any) -> Json:
        """Let the client perform a command that may fail. Raises NotApplicable if it has none.

        Raises Violation for an answer of another form.
        """
        answer = await self._client.answer({"do": do, "conversation": self.id, **fields})
        if answer.get("unknown") is True:
            raise NotApplicable(f"the client has no command {do}")
        return checked(do, answer)

    async def connect(self, *, address: str = "", **fields: Any) -> None:
        """Let the client begin with an empty store, or with `keep` the last one, and follow."""
        key = self.entries.key(ME).private_bytes_raw().hex()
        await self.ask("connect", address=address or self.address, key=key, **fields)
        await self.ask("follow")

    async def joined(self) -> None:
        """Hold the first entries at the hub, and let the client become synchronized."""
        self.hub.hold(self.entries.conversation, self.all())
        await self.connect()
        await self.synchronized()

    async def append(self, text: str = "Hello.") -> str:
        """Let the client append a message; return its id."""
        found: str = (await self.ask("append", text=text))["id"]
        return found

    async def status(self, request: str = "") -> Json:
        """Return the client's view."""
        return await self.ask("status", request=request)

    async def synchronized(self) -> None:
        """Wait until the client states the hub's digest, synchronized and with nothing unacked."""

        def is_done(status: Json) -> bool:
            same = status["digest"] == self.held.log.digest.hex()
            return bool(same and status["synchronized"] and not status["unacked"])

        await self.until(is_done, "synchronized with the hub")

    async def until(self, condition: Callable[[Json], bool], state: str, request: str = "") -> Json:
        """Wait until the client's status satisfies a condition. Raises Violation."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE_S
        while not condition(status := await self.status(request)):
            if loop.time() > give_up_at:
                raise Violation(f"the client is never {state}; its status: {status}")
            await asyncio.sleep(POLL_S)
        return status

    # --- frames -----------------------------------------------------------------------

    async def sees(
        self, condition: Callable[[], Any], event: str, limit_s: float | None = None
    ) -> None:
        """Wait until a condition on the client's frames holds. Raises Violation."""
        patience_s = limit_s or PATIENCE_S
        try:
            async with asyncio.timeout(patience_s):
                while not condition():
                    self.hub.news.clear()
                    await self.hub.news.wait()
        except TimeoutError:
            raise Violation(f"the client sends no {event} within {patience_s:.0f} s") from None

    def sent(self, kind: type[Any], since: int = 0) -> list[Any]:
        """Return the messages of a type on the client's last stream."""
        return [s.message for s in self.hub.frames[since:] if isinstance(s.message, kind)]

    async def barrier(self, limit_bytes: int = 2**21) -> None:
        """Wait until the client has received all that was sent: it answers a Pong by LINK-5.

        It may grant credit with each frame besides, so one Pong more is sent than it had frames.
        They state the limit of the bytes that the client may send.
        """
        live, seen = self.hub.links[-1], len(self.sent(Credit))
        frames = live.sent  # no more grants than these are ever still to come
        pongs = frames + 1
        self.hub.send(*[Pong(0, 0, limit_bytes)] * pongs)
        live.sent = frames
        await self.sees(lambda: len(self.sent(Credit)) >= seen + pongs, "Credit after a Pong")

    async def linked(self, count: int) -> None:
        """Wait until the client has begun that many links."""
        await self.sees(lambda: len(self.hub.links) >= count, f"link number {count}")

    def drop(self, kind: type[Message]) -> None:
        """Lose the first message of a type on its way to the hub."""
        lost: list[Message] = []

        def passes(message: Message) -> bool:
            if isinstance(message, kind) and not lost:
                lost.append(message)
                return False
            return True

        self.hub.passes = passes

    def check_malformed(self) -> None:
        """Raise Violation where a frame of the client is malformed."""
        for live in self.hub.links:
            check(not live.malformed, f"the client sent a wrong frame: {live.malformed}")


class Clients:
    """The clients of a run; each case gets one that no other case uses then."""

    def __init__(self, *clients: Asked) -> None:
        """Use these clients, each for one case at a time."""
        self._free: asyncio.Queue[Asked] = asyncio.Queue()
        for client in clients:
            self._free.put_nowait(client)

    @asynccontextmanager
    async def session(self, name: str) -> AsyncIterator[Session]:
        """Start a hub for a client; check its frames at the end."""
        client, hub = await self._free.get(), ScriptedHub()
        try:
            session = Session(client, hub, name, await hub.start())
            yield session
            session.check_malformed()
        finally:
            self._free.put_nowait(client)
            await hub.stop()


CASES: Table[Clients] = Table()

_Case = Callable[[Session], Awaitable[None]]


def theme(name: str) -> Callable[..., Callable[[_Case], _Case]]:
    """Return a decorator for the cases of one file, each with a session of its own."""
    shows = CASES.theme(name).shows

    def case(*requirements: str) -> Callable[[_Case], _Case]:
        def register(judge: _Case) -> _Case:
            async def run(clients: Clients) -> None:
                async with clients.session(f"{name} {judge.__name__}") as session:
                    await judge(session)

            run.__name__, run.__doc__ = judge.__name__, judge.__doc__
            shows(*requirements)(run)
            return judge

        return register

    return case
