"""The conversations that a hub lists, opened when somebody asks for them (HOST-124)."""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from replica.core import Selection
from replica.ids import ConversationId
from replica.io.driver.driver import ReplicaDriver
from replica.io.driver.hub_status import HubStatus
from replica.link import SyncState

ASK_TIMEOUT_S = 10.0
"""Longest wait for a conversation that is opened because somebody asks for it."""
_DECIDED = (SyncState.SYNCHRONIZED, SyncState.DESYNCHRONIZED, SyncState.DENIED)


class OnDemand:
    """Opens listed conversations that the policy left closed, and keeps them open for a use."""

    def __init__(
        self,
        driver: ReplicaDriver,
        hub: HubStatus,
        wait_for: Callable[[Callable[[], bool], float], Awaitable[bool]],
    ) -> None:
        """Drive the core of `driver`; `wait_for` waits for a condition or a time in seconds."""
        self._driver = driver
        self._hub = hub
        self._wait_for = wait_for

    @property
    def selection(self) -> Selection:
        """The listed conversations, for reading."""
        return self._driver.core.listed.selection

    async def ask(self, conversation: ConversationId) -> None:
        """Open a listed conversation, and wait until it is in sync or refused.

        Does nothing for one that the policy does not admit. One that is in use is waited for
        alone; while no hub is linked, nothing is.
        """
        listed, now = self._driver.core.listed, time.monotonic()
        if not self.selection.may_open(conversation):
            return
        if not listed.is_used(conversation):
            listed.ask(conversation, now)
            self._driver.do(self._driver.core.handle_deadline(now))
        await self._wait_for(lambda: self._is_decided(conversation), ASK_TIMEOUT_S)

    def _is_decided(self, conversation: ConversationId) -> bool:
        return self._hub.is_away or self._hub.state(conversation) in _DECIDED

    @contextmanager
    def using(self, conversation: ConversationId) -> Iterator[None]:
        """Keep a conversation open during the block."""
        listed = self._driver.core.listed
        listed.pin(conversation, 1)
        try:
            yield
        finally:
            listed.pin(conversation, -1)
            self._driver.evict(conversation)
