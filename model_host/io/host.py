"""The host at work: follow conversations, answer requests (spec/07-host §4).

Whose turn it is. How one request is answered is model_host/io/request_handler.py's.
One generation runs at a time; the others wait in the order they came, the
conversations taking turns.
"""

import asyncio
from contextlib import suppress

import structlog

from model_host.io.request_handler import AnswerCounters, Answering
from replica.conversation import Conversation, Sealable, open_requests, sealable
from replica.errors import AntiphonError, HostError, StoreError, Unavailable
from replica.ids import ConversationId, EntryId, short
from replica.io import Replica
from replica.link import EntriesAcked, EntriesAdmitted, Event, StateChanged, SyncState

log = structlog.get_logger()

RETRY_AFTER_S = 1.0


class Host:
    """Answers the requests that name it, one after the other."""

    def __init__(self, client: Replica, answering: Answering) -> None:
        """Follow through `client`; what is answered is durable there."""
        self._client = client
        self._answering = answering
        self._awake = asyncio.Event()
        self._last_served: dict[ConversationId, int] = {}
        self._served = 0
        self._given_up: set[EntryId] = set()
        client.listen(self._receive)

    @property
    def counters(self) -> AnswerCounters:
        """How requests were answered since start."""
        return self._answering.counters

    @property
    def running(self) -> int:
        """Generations running now."""
        return int(self._answering.running is not None)

    @property
    def waiting(self) -> int:
        """Requests waiting now, the one being answered not among them."""
        shelf = tuple(self._client.shelf.values())
        waiting = {i for c in shelf for i in open_requests(c, self._client.public)}
        running = self._answering.running
        # It is answered already while its checkpoint is written.
        return len(waiting - {running.plan.request_id} if running is not None else waiting)

    def _receive(self, event: Event) -> None:
        match event:
            case EntriesAdmitted():
                self._awake.set()
            case EntriesAcked(conversation, positions):
                run = self._answering.running
                if run is not None and any(p.id == run.seal_id for p in positions):
                    self._answering.show_from_start(conversation)
            case StateChanged(conversation, SyncState.SYNCHRONIZED):
                self._awake.set()
                self._answering.show_from_start(conversation)
                held = self._client.shelf.get(conversation)
                if held is not None:
                    # What can't be deleted now is no hindrance, and is tried with the next link.
                    with suppress(StoreError):
                        self._answering.forget_answered(held)
            case _:
                pass

    async def run(self) -> None:
        """Answer requests until cancelled."""
        while True:
            self._awake.clear()
            found = self._next()
            if found is None:
                await self._awake.wait()
                continue
            held, ready = found
            self._served += 1
            self._last_served[held.id] = self._served
            await self._serve(held, ready)

    def _next(self) -> tuple[Conversation, Sealable | EntryId] | None:
        """Return the request whose turn it is: its branch free, its conversation least served."""
        shelf = sorted(self._client.shelf.values(), key=lambda c: self._last_served.get(c.id, 0))
        for held in shelf:
            # A host syncs its own lanes before its first seal: it may have sealed already.
            if self._client.state(held.id) is not SyncState.SYNCHRONIZED:
                continue
            if not held.is_member(self._client.public):
                continue
            for request_id in open_requests(held, self._client.public):
                if request_id in self._given_up:
                    continue
                if request_id in held.order.seal_of:
                    return held, request_id
                ready = sealable(held, request_id)
                if ready is not None:
                    return held, ready
        return None

    async def _serve(self, held: Conversation, ready: Sealable | EntryId) -> None:
        """Answer a request, or close it where that fails. It never ends the host.

        What only one request can cause would otherwise meet every start of the host,
        and be the end of all other conversations too.
        """
        request_id = ready.request if isinstance(ready, Sealable) else ready
        failure: Exception = HostError()
        for answer in (True, False):
            try:
                if not answer:
                    await self._answering.close(held, request_id, failure)
                elif isinstance(ready, Sealable):
                    await self._answering.begin(held, ready)
                else:
                    await self._answering.resume(held, ready)
            except (StoreError, Unavailable) as error:
                # The log takes nothing now (disk full, say); the request stays open.
                await self._pause(error)
                return
            except Exception as error:  # logged, and told in the log entry
                log.error("answering failed", request=short(request_id), exc_info=True)
                failure = error
            else:
                return
        # Not even a refusal can be appended. The next start tries again.
        self._given_up.add(request_id)

    async def _pause(self, error: AntiphonError) -> None:
        log.warning("could not answer", reason=error.reason, detail=error.detail)
        await self._client.wait_for(lambda: False, RETRY_AFTER_S)
