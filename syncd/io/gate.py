"""Who may go on with a call, before any byte of its request is read (spec/04-link §2).

The ticket comes first: a message of a megabyte costs a stranger little, and memory and time
here. Then the call is counted, and its request is parsed in steps of its key.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeVar

from replica.errors import AntiphonError
from replica.ids import PublicKey
from replica.io import Keyless, rpc
from replica.link import Authenticator, Steps
from replica.refusals import RateLimited
from syncd.bounds import STRANGERS
from syncd.io.driver import HubDriver
from syncd.io.turns import Turns

RETRY_AFTER_S = 5.0

_Result = TypeVar("_Result")


class _NoPlace(RateLimited):
    """A call that got no turn; its refusal waits for none."""


class Gate:
    """Admits the calls of a hub's services."""

    def __init__(self, driver: HubDriver, authenticator: Authenticator) -> None:
        """Admit keys with a ticket of `authenticator` to calls of `driver`'s hub."""
        self._driver = driver
        self._authenticator = authenticator
        self._keyless = Keyless()
        self._turns = Turns()
        self.keys: dict[rpc.Context, PublicKey] = {}
        """The key of each call that is counted."""

    def key_of(self, context: rpc.Context) -> PublicKey:
        """Return the key of a call. Raises Unauthenticated."""
        return self.keys.get(context) or rpc.caller(self._authenticator, context)

    async def refuse(self, context: rpc.Context, error: AntiphonError) -> None:
        """Count a refusal, and return in its turn, or at once where it has no place."""
        self._driver.counters.note_refusal(error)
        if not isinstance(error, _NoPlace):
            await self._turns.turn(context.peer())

    @asynccontextmanager
    async def keyless(self, context: rpc.Context) -> AsyncIterator[rpc.RunSteps]:
        """Admit a call that needs no key, in its turn, at the cost of strangers (LIM-13).

        Raises RateLimited.
        """
        if not await self._turns.turn(context.peer()):
            raise _NoPlace("too many calls without a key wait", retry_after_s=RETRY_AFTER_S)
        self._driver.throttle.call(STRANGERS.key)
        async with self._keyless.place() as leave:

            async def run(steps: Steps[_Result], /) -> _Result:
                leave()  # what waits from now on is small, and for its step
                return await self._driver.pacer.in_steps(steps, STRANGERS.key)

            yield run

    def counted(self, context: rpc.Context) -> "_Counted":
        """Count a call of a key as running. Raises Unauthenticated, RateLimited."""
        return _Counted(self, self._driver, context)

    def counted_stream(self, context: rpc.Context) -> "_Counted":
        """Count a call that begins a stream until its request is there; as `counted`."""
        return _Counted(self, self._driver, context, is_stream=True)

    @asynccontextmanager
    async def transfer(self, context: rpc.Context) -> AsyncIterator[rpc.RunSteps]:
        """Count a call among the transfers until its request is there; then it counts itself.

        Raises Unauthenticated, QuotaExceeded.
        """
        peer = self.key_of(context)
        with self._driver.transfers.count(peer):
            yield partial(self._driver.pacer.in_steps, key=peer)


class _Counted(AbstractAsyncContextManager[rpc.RunSteps, None]):
    """A call that counts while it runs. Its ticket is looked at once."""

    def __init__(
        self, gate: Gate, driver: HubDriver, context: rpc.Context, *, is_stream: bool = False
    ) -> None:
        self._gate, self._driver, self._context = gate, driver, context
        self._is_stream = is_stream

    async def __aenter__(self) -> rpc.RunSteps:
        peer = self._gate.key_of(self._context)
        self._driver.calls.begin(peer)
        self._gate.keys[self._context] = peer
        if self._is_stream:
            self._driver.pacer.note_stream(peer)
        return partial(self._driver.pacer.in_steps, key=peer)

    async def __aexit__(self, *_raised: object) -> None:
        self._driver.calls.end(self._gate.keys.pop(self._context))
