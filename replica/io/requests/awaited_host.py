"""The host of an awaited answer: one that is gone for good answers nothing (DECISIONS D631).

One that is there may say itself what keeps it from the answer (DECISIONS D692).
"""

import asyncio
import time
from contextlib import suppress

from replica.conversation import Conversation
from replica.errors import AntiphonError
from replica.ids import EntryId, PublicKey, short
from replica.io.driver import Replica
from replica.io.requests.answer_errors import HostGone, not_cancelled
from replica.io.requests.hindrance import hindrance
from replica.io.requests.linked_hosts import HOSTS_WAIT_S, hosts_of

LOOK_S = 2.0
"""Seconds after which the hub is asked again whether it has the host."""


class AwaitedHost:
    """Looks whether the host of a request may still end it."""

    def __init__(self, replica: Replica, request: EntryId) -> None:
        """Look at nothing yet."""
        self._replica = replica
        self._request = request
        self._looked_at: float | None = None
        self._was_missing = False

    async def look(self, held: Conversation) -> float | None:
        """Return the seconds after which to look again, None while the request stands.

        Raises HostGone if its host is no member any more; of a cancelled request also if it is
        not at the hub, twice in a row: its last words may be on their way. It may come back, but
        this answer is wanted no more.
        """
        asked = held.order.request(self._request)
        if asked is None:
            return None
        is_cancelled = held.order.is_cancelled(self._request)
        if not held.log.membership.is_host(asked.host):
            error = HostGone(f"its host {short(asked.host)} was removed", request=self._request)
            raise error if is_cancelled else not_cancelled(error)
        if not is_cancelled:
            return None
        now = time.monotonic()
        if self._looked_at is None or now - self._looked_at >= LOOK_S:
            self._looked_at = now
            was_missing, self._was_missing = self._was_missing, await self._has_left(asked.host)
            if was_missing and self._was_missing:
                detail = f"it was cancelled, and its host {short(asked.host)} has left the hub"
                raise HostGone(detail, request=self._request)
        return LOOK_S

    async def hindrance(self, held: Conversation) -> str:
        """Return the reason of the error that keeps the host from the request, as it says itself.

        Empty where it says nothing, or is not there.
        """
        asked = held.order.request(self._request)
        if asked is None or not self._replica.hub.is_linked:
            return ""
        with suppress(AntiphonError, TimeoutError):  # then no more is known than before
            async with asyncio.timeout(HOSTS_WAIT_S):
                found = await hosts_of(self._replica.calls())
                addresses = {one.key: one.info.address for one in found}
                if address := addresses.get(asked.host):
                    return await hindrance(self._replica, held.id, asked.host, address)
        return ""

    async def _has_left(self, host: PublicKey) -> bool:
        """Say whether the hub is linked and has no such host."""
        if not self._replica.hub.is_linked:
            return False
        try:
            found = await hosts_of(self._replica.calls())
        except AntiphonError:
            return False  # the hub is away or busy, which the link itself reports
        return all(one.key != host for one in found)
