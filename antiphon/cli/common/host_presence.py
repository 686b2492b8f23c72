"""Why an awaited answer is silent: its host was removed, is gone, or can't go on with it.

While an answer is silent, the hub is asked for its hosts again and again; a host that was killed
is missed within three seconds. A host that is there is asked itself.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from replica.errors import AntiphonError
from replica.ids import ConversationId, PublicKey
from replica.io import OWNER_NOT_SERVED, Replica, hindrance, hosts_of

SILENCE_S = 1.0
"""Time without news of an answer after which the hub is asked."""
ASK_EVERY_S = 1.0
HOST_WAIT_S = 2.0
"""The longest wait for a host's reason: one that stands still gives none, and the hub is asked."""
HOST_PAUSE_S_MAX = 16.0
"""The longest pause before a host that names no reason is asked again: it may be busy."""
LOOK_EVERY_S = 0.25
GONE = "its host left the hub; waiting for it"
REMOVED = "its host was removed; no answer comes"
NOT_SERVED = "its host does not serve your conversations; ask its operator, or name another host"
HINDERED = "its host can't go on with it [{}], and tries again; its operator can look into it"


class HostPresence:
    """Asks the hub for its hosts, and a host, while nothing is heard of an answer."""

    def __init__(self, replica: Replica, conversation: ConversationId) -> None:
        """Ask through the hub of `replica`, about answers in `conversation`."""
        self._replica = replica
        self._conversation = conversation
        self._linked: frozenset[PublicKey] | None = None
        self._hindrances: dict[PublicKey, str] = {}
        """The reasons of errors that keep hosts from the conversation."""
        self._unhindered: set[PublicKey] = set()
        """Hosts whose last answer named none."""
        self._heard_s = time.monotonic()
        self._asked_s = 0.0
        self._host_pause_s, self._host_due_s = ASK_EVERY_S, 0.0
        self._asking: asyncio.Task[None] | None = None

    def note_news(self) -> None:
        """Note that something was heard of the answer."""
        self._heard_s = time.monotonic()
        self._linked = None
        self._hindrances.clear()
        self._host_pause_s, self._host_due_s = ASK_EVERY_S, 0.0

    def delay(self, host: PublicKey) -> str:
        """Return why the host is silent, as far as is known; empty otherwise. May ask again."""
        held = self._replica.shelf.get(self._conversation)
        if held is not None and not held.log.membership.is_host(host):
            return REMOVED
        now = time.monotonic()
        is_due = now - self._heard_s >= SILENCE_S and now - self._asked_s >= ASK_EVERY_S
        if is_due and self._replica.hub.is_linked and self._asking is None:
            self._asked_s = now
            self._asking = asyncio.create_task(self._ask(host), name="hosts of the hub")
        if self._linked is None:
            return ""
        if host not in self._linked:
            return GONE
        reason = self._hindrances.get(host)
        if reason == OWNER_NOT_SERVED:
            return NOT_SERVED
        return HINDERED.format(reason) if reason else ""

    async def report(self, host: PublicKey, say: Callable[[str], None]) -> None:
        """Say once, until it is heard of again, why the host is silent; never returns."""
        said = ""
        while True:
            words = self.delay(host)
            if words and words != said:
                say(words)
            said = words
            await asyncio.sleep(LOOK_EVERY_S)

    async def stop(self) -> None:
        """End a question under way."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self, host: PublicKey) -> None:
        """Ask the hub, and the host; what was asked before the last news is of no use."""
        replica, heard_s = self._replica, self._heard_s
        try:
            found = await hosts_of(replica.calls())
            replica.hub.learn(found)
            addresses = {one.key: one.info.address for one in found}
            if self._heard_s != heard_s:
                return
            self._linked = frozenset(addresses)
            if host in addresses and time.monotonic() >= self._host_due_s:
                await self._ask_host(host, addresses[host], heard_s)
        except AntiphonError:
            self._linked = None  # the hub is away or busy, which the link itself reports
        finally:
            self._asking = None

    async def _ask_host(self, host: PublicKey, address: str, heard_s: float) -> None:
        found: str | None = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(HOST_WAIT_S):
                    found = await hindrance(self._replica, self._conversation, host, address)
        except AntiphonError:
            return  # it may not know the conversation yet, and is asked again
        if self._heard_s != heard_s:
            return
        self._host_pause_s = ASK_EVERY_S if found else min(2 * self._host_pause_s, HOST_PAUSE_S_MAX)
        self._host_due_s = time.monotonic() + self._host_pause_s
        if found is None:
            return
        if found:
            self._hindrances[host] = found
            self._unhindered.discard(host)
        elif host in self._unhindered:
            self._hindrances.pop(host, None)
        else:  # of a request that it is trying again just now, it names none
            self._unhindered.add(host)
