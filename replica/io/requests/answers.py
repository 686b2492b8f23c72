"""The answer of a request as it arrives, from its draft or the log (spec/04-link §6).

    Asked ─► Prefilling … ─► Delta … ─► Finished
                   Discarded: a new run began, forget the text shown
                   LinkLost / LinkBack: the answer continues where it was

The log decides: whatever a draft showed, `Finished` has the logged generation.
A follower that starts late, or reconnects, resumes at its offset.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from replica.conversation import (
    Conversation,
    DraftStream,
    OpenCall,
    Progress,
    calls_ahead,
    goes_behind,
    queued_place,
    refusal_of,
)
from replica.errors import AntiphonError, StoreError
from replica.ids import ConversationId, EntryId
from replica.io.driver import Replica
from replica.io.requests.answer_errors import AnswerNotBegun, AnswerOverdue, hindered, overdue
from replica.io.requests.awaited_host import AwaitedHost
from replica.io.serving import error_of, now_ms
from replica.link import (
    DraftReceived,
    EntriesAdmitted,
    EntryFailed,
    Event,
    Fault,
    Forgotten,
    LinkClosed,
    Welcomed,
)
from replica.log import (
    Generation,
    text_of,
)

BEGIN_GRACE_MS = 1_000
"""Time for the news of an answer that has begun in time, or of its refusal."""
STOPPED_S = 1.0
"""Seconds by which a wait ends late only in a process that did not run."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The turn is durable here, and is sent as soon as the hub is linked."""

    message: EntryId | None
    request: EntryId


@dataclass(frozen=True, slots=True)
class Prefilling:
    """Progress of the host before its first token."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class Delta:
    """The next text of the answer; `tokens` counts all output so far."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Discarded:
    """The text shown is void: a new run began, or the logged answer differs."""


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The link to the hub ended; the answer is still awaited."""


@dataclass(frozen=True, slots=True)
class LinkBack:
    """The hub is linked again."""


@dataclass(frozen=True, slots=True)
class NotTaken:
    """The hub does not take what was written, and may later: it is sent again."""

    error: AntiphonError


@dataclass(frozen=True, slots=True)
class NotStored:
    """The store here does not take what the hub sends, and may later: it is fetched again."""

    error: AntiphonError


@dataclass(frozen=True, slots=True)
class Finished:
    """The generation is in the log."""

    id: EntryId
    generation: Generation


TurnEvent = (
    Asked | Prefilling | Delta | Discarded | LinkLost | LinkBack | NotTaken | NotStored | Finished
)


async def follow_answer(
    replica: Replica,
    conversation: ConversationId,
    request_id: EntryId,
    *,
    silence_max_s: float | None = None,
    begin_by_ms: int = 0,
) -> AsyncIterator[TurnEvent]:
    """Yield the answer of a request as it arrives, from its draft or the log; ends with Finished.

    Waits while the hub is away. Raises AnswerOverdue after `silence_max_s`
    without news, HostGone, AnswerNotBegun behind `begin_by_ms`, the error with which the hub
    refused the request, the one of a link that does not come back by waiting,
    such as PeerIdentityChanged, and ConversationUnknown once the conversation was deleted here.
    """
    watch = AnswerWatch(replica, conversation, request_id, begin_by_ms=begin_by_ms)
    host = AwaitedHost(replica, request_id)
    try:
        while True:
            for event in await watch.news():
                yield event
                if isinstance(event, Finished):
                    return
            look_s = await host.look(await replica.load(conversation))
            try:
                await watch.wait(silence_max_s, look_s)
            except AnswerOverdue as error:
                reason = await host.hindrance(await replica.load(conversation))
                if not reason:
                    raise
                raise hindered(error, reason) from None
    finally:
        watch.stop()


def was_stopped(waited_s: float, bound_s: float) -> bool:
    """Say whether a wait ended so late that this process did not run meanwhile.

    It has yet to read what came, so that the wait is no silence of others (DECISIONS D650).
    """
    return waited_s - max(bound_s, 0.0) > STOPPED_S


class AnswerWatch:
    """The news of a request's log and draft, compared after every event.

    States are compared instead of collecting events, so a lost link, a late
    start or a doubled frame changes nothing.
    """

    def __init__(
        self,
        replica: Replica,
        conversation: ConversationId,
        request_id: EntryId,
        *,
        begin_by_ms: int = 0,
    ) -> None:
        """Watch from now on, until `stop` is called.

        `begin_by_ms` is the Unix time until which the answer has to begin; 0 for any time.
        """
        self._replica = replica
        self._conversation = conversation
        self._request = request_id
        self._awake = asyncio.Event()
        # Whoever comes late hears no event: the hub refuses an entry once on a link.
        self._refused = replica.hub.denial(conversation, request_id)
        self._not_taken: AntiphonError | None = None
        """The hub's last refusal that passes, as of a full disk."""
        self._not_stored: AntiphonError | None = None
        """The last failure of the store here, until it takes something again."""
        self._told: set[tuple[type[TurnEvent], str]] = set()
        """The reasons of these that were told."""
        self._is_linked = replica.hub.is_linked
        self._progress: Progress | None = None
        self._run = 0
        self._state: object = None
        self._silent_s = 0.0
        self._calls: tuple[OpenCall, ...] = ()
        """The calls whose results the request waits for."""
        self._begin_by_ms = begin_by_ms
        self._shown = bytearray()
        self.stop: Callable[[], None] = replica.listen(self._receive)

    def _receive(self, event: Event) -> None:
        match event:
            case DraftReceived(draft) if draft.request != self._request:
                return
            case EntriesAdmitted(conversation) if conversation != self._conversation:
                return
            case EntryFailed(conversation, entry, fault, is_own):
                if conversation == self._conversation and entry in (None, self._request):
                    self._note_refusal(fault, is_stored=not is_own or entry is not None)
            case EntriesAdmitted():
                self._not_stored = None
            case Forgotten(conversation) if conversation != self._conversation:
                return
            case DraftReceived() | LinkClosed() | Welcomed() | Forgotten():
                pass
            case _:
                return
        self._awake.set()

    def _note_refusal(self, fault: Fault, *, is_stored: bool) -> None:
        error = error_of(fault)
        if not fault.retryable and not isinstance(error, StoreError):
            self._refused = fault
        elif is_stored:
            self._not_taken = error  # its operator mends a store
        else:
            self._not_stored = error

    async def wait(self, silence_max_s: float | None, look_again_s: float | None = None) -> None:
        """Wait for an event that may bring news, at most `look_again_s` seconds.

        Raises AnswerOverdue after `silence_max_s` seconds of such waits without
        a step towards the answer in between (DECISIONS D441, D650), or the refusal of a hub, or
        of the store here, that takes nothing for now.
        """
        began, left_s, is_awake = time.monotonic(), None, False
        if silence_max_s is not None:
            left_s = silence_max_s - self._silent_s
        bounds = (left_s, look_again_s, self._begin_left_s())
        bound_s = min((bound for bound in bounds if bound is not None), default=inf)
        with suppress(TimeoutError):
            async with asyncio.timeout(bound_s if bound_s < inf else None):
                await self._awake.wait()
            # Without time left, an event that is no step comes too late to look at.
            is_awake = left_s is None or left_s > 0
        waited_s = time.monotonic() - began
        if was_stopped(waited_s, bound_s):
            return
        self._silent_s += waited_s
        if silence_max_s is not None and self._silent_s >= silence_max_s and not is_awake:
            if self._not_stored is not None:
                raise self._not_stored
            if self._not_taken is not None and self._replica.hub.unsynced(self._conversation):
                raise self._not_taken
            raise overdue(self._replica.hub, self._request, self._silent_s, self._calls)

    async def news(self) -> list[TurnEvent]:
        """Return the changes since the last call as events.

        Raises the hub's refusal, the error of a link that does not come back by waiting,
        AnswerNotBegun, and ConversationUnknown once the conversation was deleted here.
        """
        self._awake.clear()
        if self._refused is not None:
            held = await self._replica.load(self._conversation)
            raise refusal_of(held, self._replica.public, error_of(self._refused))
        events: list[TurnEvent] = []
        if self._replica.hub.is_linked != self._is_linked:
            self._is_linked = not self._is_linked
            events.append(LinkBack() if self._is_linked else LinkLost())
        events += self._hindrances()
        held = await self._replica.load(self._conversation)
        stream = held.drafts.get(self._request)
        if stream is not None:
            events += self._from_draft(stream)
        self._look_for_steps(held, stream)
        generation_id = held.order.generation_of(self._request)
        generation = held.order.answer(self._request)
        if generation_id is not None and generation is not None:
            return [*events, *self._from_log(generation), Finished(generation_id, generation)]
        error = self._replica.hub.lasting_error
        if error is not None:
            raise error
        left_s = self._begin_left_s()
        if left_s is not None and left_s <= 0:
            late_s = BEGIN_GRACE_MS / 1000 - left_s
            detail = f"no answer had begun {late_s:.0f} s after the time set for it"
            raise AnswerNotBegun(detail, request=self._request)
        return events

    def _begin_left_s(self) -> float | None:
        """Return the time for an answer to begin, None for any or where it has begun."""
        if not self._begin_by_ms:
            return None
        return (self._begin_by_ms + BEGIN_GRACE_MS - now_ms()) / 1000

    def _look_for_steps(self, held: Conversation, stream: DraftStream | None) -> None:
        """End the silence if the turn, or the one that it waits behind, is a step further."""
        draft = (stream.run, stream.token_count) if stream is not None else None
        place = queued_place(held, self._request)
        self._calls = calls_ahead(held, place) if place is not None else ()
        ahead = goes_behind(held, place) if place is not None else None
        behind = (ahead.id, ahead.generation) if ahead is not None else None
        seal = held.order.seal_of.get(self._request)
        if seal is not None or draft is not None:
            self._begin_by_ms = 0
        state = (draft, self._progress, seal, behind)
        if state != self._state:
            self._state, self._silent_s = state, 0.0

    def _hindrances(self) -> list[TurnEvent]:
        """Return why hub or store take nothing for now, each reason once."""
        events: list[TurnEvent] = []
        for kind, error in ((NotTaken, self._not_taken), (NotStored, self._not_stored)):
            if error is not None and (kind, error.reason) not in self._told:
                self._told.add((kind, error.reason))
                events.append(kind(error))
        return events

    def _from_draft(self, stream: DraftStream) -> list[TurnEvent]:
        events: list[TurnEvent] = []
        if stream.run != self._run:
            if self._shown:
                events.append(Discarded())
            self._run = stream.run
            self._shown.clear()
        progress = stream.frames[-1].progress if stream.frames else None
        if progress is not None and progress != self._progress:
            self._progress = progress
            events.append(Prefilling(progress))
        fresh = self._fresh_bytes(stream)
        if fresh:
            self._shown += fresh
            events.append(Delta(fresh.decode(errors="replace"), stream.token_count))
        return events

    def _fresh_bytes(self, stream: DraftStream) -> bytes:
        """Return the visible bytes not shown yet, reading only the last frames."""
        pieces = []
        for frame in reversed(stream.frames):
            if frame.byte_offset < len(self._shown):
                break
            pieces.append(frame.data)
        return b"".join(reversed(pieces))

    def _from_log(self, generation: Generation) -> list[TurnEvent]:
        """Return the rest of the logged text not shown yet; it overrides a draft."""
        text = text_of(generation.parts).encode()
        events: list[TurnEvent] = []
        if not text.startswith(bytes(self._shown)):
            events.append(Discarded())
            self._shown.clear()
        rest = text[len(self._shown) :].decode(errors="replace")
        if rest:
            events.append(Delta(rest, len(generation.token_ids)))
        return events
