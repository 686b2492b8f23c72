"""The host of an awaited turn: one that is gone for good answers nothing (DECISIONS D631)."""

import time

from replica.conversation import Conversation as Held
from replica.errors import AntiphonError, with_step
from replica.ids import EntryId, PublicKey, short
from replica.io import AnswerOverdue, Replica, hosts_of

LOOK_S = 2.0
"""Seconds after which the hub is asked again whether it has the host."""
_ANEW = (
    "sk again, under another `key`: the branch goes on without this answer."
    ' `grant(key, "host")` lets another host answer.'
)
_CANCEL_FIRST = f"Call `cancel(error.request)`, then a{_ANEW}"


class AwaitedHost:
    """Looks whether the host of a request may still end it."""

    def __init__(self, replica: Replica, request: EntryId) -> None:
        """Look at nothing yet."""
        self._replica = replica
        self._request = request
        self._looked_at: float | None = None

    async def look(self, held: Held) -> float | None:
        """Return the seconds after which to look again, None while the request stands.

        Raises AnswerOverdue if its host is no member any more; of a cancelled request also if it
        is not at the hub. It may come back, but this answer is wanted no more.
        """
        asked = held.order.request(self._request)
        if asked is None:
            return None
        is_cancelled = held.order.is_cancelled(self._request)
        if not held.log.membership.is_host(asked.host):
            detail = f"its host {short(asked.host)} was removed"
            raise self._overdue(detail, f"A{_ANEW}" if is_cancelled else _CANCEL_FIRST)
        if not is_cancelled:
            return None
        now = time.monotonic()
        if self._looked_at is None or now - self._looked_at >= LOOK_S:
            self._looked_at = now
            if await self._has_left(asked.host):
                detail = f"it was cancelled, and its host {short(asked.host)} has left the hub"
                raise self._overdue(detail, f"A{_ANEW}")
        return LOOK_S

    async def _has_left(self, host: PublicKey) -> bool:
        """Say whether the hub is linked and has no such host."""
        if not self._replica.hub.is_linked:
            return False
        try:
            found = await hosts_of(self._replica.calls())
        except AntiphonError:
            return False  # the hub is away or busy, which the link itself reports
        return all(one.key != host for one in found)

    def _overdue(self, detail: str, next_step: str) -> AnswerOverdue:
        return with_step(AnswerOverdue(detail, request=self._request), next_step)
