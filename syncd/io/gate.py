"""Who may go on with a call, before any byte of its request is read (spec/04-link §2).

The ticket comes first: a message of a megabyte costs a stranger little, and memory and time
here. Then the call is counted, and its request is parsed in steps of its key.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from replica.ids import PublicKey
from replica.io import Keyless, rpc
from replica.link import Authenticator
from syncd.io.driver import HubDriver


class Gate:
    """Admits the calls of a hub's services."""

    def __init__(self, driver: HubDriver, authenticator: Authenticator) -> None:
        """Admit keys with a ticket of `authenticator` to calls of `driver`'s hub."""
        self._driver = driver
        self._authenticator = authenticator
        self.keyless = Keyless().admit
        """Admits calls that need no key."""

    def key_of(self, context: rpc.Context) -> PublicKey:
        """Return the key of a call. Raises Unauthenticated."""
        return rpc.caller(self._authenticator, context)

    @asynccontextmanager
    async def counted(self, context: rpc.Context) -> AsyncIterator[rpc.RunSteps]:
        """Count a call of a key as running. Raises Unauthenticated, RateLimited."""
        peer = self.key_of(context)
        with self._driver.calls.count(peer):
            yield partial(self._driver.pacer.in_steps, key=peer)

    @asynccontextmanager
    async def transfer(self, context: rpc.Context) -> AsyncIterator[rpc.RunSteps]:
        """Count a call among the transfers until its request is there; then it counts itself.

        Raises Unauthenticated, QuotaExceeded.
        """
        peer = self.key_of(context)
        with self._driver.transfers.count(peer):
            yield partial(self._driver.pacer.in_steps, key=peer)
