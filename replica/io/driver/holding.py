"""Who holds a shared store: this process, or another one that serves it (DECISIONS D340).

    obtain ──► lock: serve                      other processes join
       └─────► socket: follow who serves ──► it ends ──► obtain …

While the store changes hands calls wait, and are then made at the next process.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self, TypeVar

from replica.conversation import EntryStore
from replica.errors import ReplicaClosed, StoreError
from replica.io.files import Claims, typed_errors
from replica.io.local import (
    ConnectionEnded,
    Identity,
    LocalClient,
    LocalFrame,
    LocalServer,
    SharingUnsupported,
    WriteUnconfirmed,
    local_socket,
)
from replica.io.process import Worker, get_logger
from replica.io.store import Store, open_read_only
from replica.log import Entry
from replica.refusals import (
    DraftUnknown,
    StoreCorrupt,
    StoreLocked,
    StoreVersionUnknown,
)

log = get_logger()

OPEN_WAIT_S = 1.0
"""Seconds in which a process that starts or ends becomes one that serves, or is gone."""
CALL_WAIT_S = 20.0
"""Seconds that a call waits for a process that serves."""
PAUSE_FIRST_S, PAUSE_MAX_S = 0.002, 0.1
RETRY_PAUSE_MAX_S = 1.0
"""Seconds between tries to take up a store that end with an error, such as a full disk."""
_LASTING = (SharingUnsupported, StoreVersionUnknown, DraftUnknown, StoreCorrupt)
"""Errors of a hand-over that do not pass while this process runs; every other may."""
_HOLDER = b"holder"
"""The claim of a process that holds the store and shares it, until it has closed the store."""
_T = TypeVar("_T")


class Sharer(Protocol):
    """The replica of this process, as the others use it; see sharing.py."""

    async def perform(self, frame: LocalFrame) -> LocalFrame | None:
        """Perform a request of another process, in the process that serves."""

    async def notice(self, frame: LocalFrame) -> None:
        """Receive an announcement of the serving process."""

    async def catch_up(self, store: EntryStore) -> tuple[Entry, ...]:
        """Admit what the store holds by now; return the entries of memory that it lacks."""

    async def restore(self, lost: tuple[Entry, ...]) -> None:
        """Store these entries again."""


@dataclass(slots=True)
class _Opened:
    """The store as it is open now: with a connection it is another process's."""

    store: Store
    stack: AsyncExitStack
    client: LocalClient | None = None
    server: LocalServer | None = None
    reads: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """No read is in progress."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """The connection has ended, and later calls wait for the next store."""


class Holding:
    """The hold of one process on a store: it has the lock, or a connection to who has it."""

    def __init__(self, path: Path, identity: Identity, claims: Claims) -> None:
        """Use `open`."""
        self._path = path
        self._claims = claims
        self._identity = identity
        self._sharer: Sharer | None = None
        self._opened: asyncio.Future[_Opened] = asyncio.get_running_loop().create_future()
        self._current: _Opened | None = None
        self._left: _Opened | None = None
        """What was open before, until it is closed."""
        self._callers = 0
        """Those that wait for a process that serves, or for its answer."""
        self._follower: Worker | None = None
        self._reading: asyncio.Task[None] | None = None
        self._restoring: asyncio.Task[None] | None = None
        self._failure: StoreError | None = None
        """Why the last try to take up the store failed, while it is tried again."""
        self._is_ending = self._is_closed = False

    # --- opening and closing ------------------------------------------------------------

    @classmethod
    async def open(cls, path: Path, identity: Identity, claims: Claims) -> Self:
        """Take the lock of a store, or join the process that holds it.

        Raises StoreLocked if another process holds it and shares it with nobody,
        SharingUnsupported, and the errors of Store.open.
        """
        holding = cls(path, identity, claims)
        holding._show(await holding._obtain(OPEN_WAIT_S))
        return holding

    async def attach(self, sharer: Sharer) -> None:
        """Begin to serve, or to follow the process that does."""
        self._sharer = sharer
        opened = self._opened.result()
        if opened.client is None:
            self._serve(opened)
        else:
            self._reading = asyncio.create_task(opened.client.run(sharer.notice))
            self._follower = Worker(self._follow, lambda: self._callers > 0, "shared store")

    async def stop_sharing(self) -> None:
        """End the service: requests in progress are finished, later ones made elsewhere."""
        self._is_ending = True
        if self._current is not None and self._current.server is not None:
            local_socket.remove(self._path)  # under the lock: nobody else has bound it since
            # What the requests in progress write is announced: the server stays until its end.
            await self._current.server.stop()
            self._current.server = None

    async def close(self) -> None:
        """Leave the store, and close it if this process holds it."""
        await self.stop_sharing()
        self._is_closed = True
        if self._follower is not None:
            await self._follower.stop()
        if not self._opened.done():  # calls wait while the store changes hands
            _fail(self._opened, ReplicaClosed())
        for task in (self._restoring, self._reading):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._leave()
        if self._current is not None:
            self._current.gone.set()
            await self._current.stack.aclose()

    @property
    def client(self) -> LocalClient | None:
        """The connection to the process that holds the store, if it is another one."""
        return self._current.client if self._current is not None else None

    @property
    def own(self) -> Store | None:
        """The store if this process holds it."""
        opened = self._current
        return opened.store if opened is not None and opened.client is None else None

    @property
    def current(self) -> Store | None:
        """The open store, to read alone unless it is `own`; None while it changes hands."""
        return self._current.store if self._current is not None else None

    @property
    def server(self) -> LocalServer | None:
        """The service for the other processes, if this one holds the store."""
        return self._current.server if self._current is not None else None

    # --- who holds the store --------------------------------------------------------------

    def _show(self, opened: _Opened) -> None:
        self._current = opened
        self._opened.set_result(opened)

    async def _obtain(self, wait_s: float | None) -> _Opened:
        """Take the lock, or join its holder; try again for `wait_s` seconds, None for ever."""
        began, pauses_s, is_late = time.monotonic(), _pauses_s(PAUSE_MAX_S), False
        while True:
            try:
                return await _hold(self._path, self._claims)
            except StoreLocked:
                if is_late:
                    raise
            try:
                return await _join(self._path, self._identity)
            except ConnectionEnded:
                pass  # the holder starts, ends, or shares with nobody
            if wait_s is not None:
                # A process that shares may be starting, or taking the place of another.
                limit_s = CALL_WAIT_S if self._claims.is_claimed(_HOLDER) else wait_s
                # The lock may have been released while this one joined: it is tried once more.
                is_late = time.monotonic() - began > limit_s
            await asyncio.sleep(next(pauses_s))

    def _serve(self, opened: _Opened) -> None:
        assert self._sharer is not None, "attached first"
        if self._is_ending:
            return
        listener = local_socket.listen(self._path)
        opened.stack.callback(local_socket.remove, self._path)
        opened.server = LocalServer(self._identity, self._sharer.perform)
        opened.server.start(listener)

    async def _follow(self) -> None:
        """Follow the serving process, and each that comes after it, until this one serves."""
        try:
            while (opened := self._current) is None or opened.client is not None:
                if opened is not None:
                    assert self._reading is not None, "begun with the connection"
                    (ended,) = await asyncio.gather(self._reading, return_exceptions=True)
                    if isinstance(ended, Exception):
                        log.warning("connection broken", detail=str(ended))
                    self._opened = asyncio.get_running_loop().create_future()
                    self._left, self._current = opened, None
                    opened.gone.set()
                await self._leave()
                await self._next()
        except Exception as error:
            _fail(self._opened, error)
            raise

    async def _leave(self) -> None:
        """Close what was open before, once no read of it is in progress. Calls that begin wait."""
        left = self._left
        while left is not None and left.reads:
            await left.idle.wait()
        self._left = None
        if left is not None:
            await left.stack.aclose()

    async def _next(self) -> None:
        """Take up the next hold on the store; again after a pause, unless it would be in vain."""
        pauses_s = _pauses_s(RETRY_PAUSE_MAX_S)
        while True:
            try:
                with typed_errors():
                    opened = await self._obtain(None)
                    await self._take_up(opened)
            except _LASTING:
                raise
            except StoreError as error:
                log.warning("could not take up the store", reason=error.reason, detail=str(error))
                self._failure = error
                await asyncio.sleep(next(pauses_s))
            else:
                self._failure = None
                return

    async def _take_up(self, opened: _Opened) -> None:
        """Go on with another hold on the store, once this process knows what it holds."""
        assert self._sharer is not None, "attached first"
        try:
            if opened.client is not None:
                self._reading = asyncio.create_task(opened.client.run(self._sharer.notice))
            lost = await self._sharer.catch_up(opened.store)
            if opened.client is None:
                self._serve(opened)
        except BaseException:
            await opened.stack.aclose()
            raise
        self._show(opened)
        if lost:
            self._restoring = asyncio.create_task(self._sharer.restore(lost))

    async def _ready(self) -> _Opened:
        """Wait for a store to call; after CALL_WAIT_S, raise why there is none.

        Raises ReplicaClosed behind `close`.
        """
        try:
            async with asyncio.timeout(CALL_WAIT_S):
                while (opened := await asyncio.shield(self._opened)) is not self._current:
                    pass  # it has ended meanwhile
        except TimeoutError as error:
            raise self._failure or StoreLocked(f"no process serves {self._path}") from error
        if self._is_closed:
            raise ReplicaClosed
        return opened

    async def call(
        self, here: Callable[[Store, bool], Awaitable[_T]], request: LocalFrame
    ) -> _T | LocalFrame:
        """Make a call in the process that holds the store; again in the next, should it end.

        `here` gets the store and whether the call may have been made before. Returns its
        result, or the other process's answer. Raises WriteUnconfirmed if nobody says whether the
        call was made; it is decided once another call through here has returned.
        """
        with self._wanted():
            again = False
            while True:
                try:
                    opened = await self._ready()
                except ReplicaClosed:
                    raise
                except StoreError as error:
                    if again and request.writes:
                        raise WriteUnconfirmed(f"it ended meanwhile; {error.detail}") from error
                    raise
                if opened.client is None:
                    return await here(opened.store, again)
                frame = LocalFrame(request.head | {"again": again}, request.blobs)
                try:
                    return await opened.client.request(frame)
                except ConnectionEnded:
                    again = True
                    await opened.gone.wait()

    async def read(self, read: Callable[[Store], Awaitable[_T]]) -> _T:
        """Read from the store, which stays open meanwhile."""
        with self._wanted():
            opened = await self._ready()
        opened.reads += 1
        opened.idle.clear()
        try:
            return await read(opened.store)
        finally:
            opened.reads -= 1
            if not opened.reads:
                opened.idle.set()

    @contextmanager
    def _wanted(self) -> Iterator[None]:
        """Keep following who serves: somebody waits for it."""
        self._callers += 1
        if self._follower is not None:
            self._follower.go_on()
        try:
            yield
        finally:
            self._callers -= 1


def _fail(opened: "asyncio.Future[_Opened]", error: Exception) -> None:
    """Have every call raise an error from now on: this replica has no store any more."""
    opened.set_exception(error)
    opened.exception()  # seen, if nobody calls


async def _hold(path: Path, claims: Claims) -> _Opened:
    async with AsyncExitStack() as closing, AsyncExitStack() as stack:
        store = await closing.enter_async_context(await Store.open(path))
        await _claim_holder(claims, path)
        # Released behind the lock: whoever finds the lock held sees that its holder shares.
        stack.callback(claims.release, _HOLDER)
        stack.push_async_exit(closing.pop_all())
        return _Opened(store, stack.pop_all())


async def _claim_holder(claims: Claims, path: Path) -> None:
    """Claim to be the holder; the one before releases it just behind the lock.

    Raises StoreLocked if it does not, as one that is stopped there.
    """
    began, pauses_s = time.monotonic(), _pauses_s(PAUSE_MAX_S)
    while not claims.claim(_HOLDER):
        if time.monotonic() - began > OPEN_WAIT_S:
            raise StoreLocked(f"the process that held {path} has not ended yet")
        await asyncio.sleep(next(pauses_s))


async def _join(path: Path, identity: Identity) -> _Opened:
    client = await LocalClient.join(path, identity)
    async with AsyncExitStack() as stack:
        stack.callback(client.close)
        store = await stack.enter_async_context(open_read_only(path))
        return _Opened(store, stack.pop_all(), client)


def _pauses_s(longest_s: float) -> Iterator[float]:
    """Yield the seconds of each pause between tries, which grow up to `longest_s`."""
    pause_s = PAUSE_FIRST_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, longest_s)
