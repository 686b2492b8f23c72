"""The events of one run, whoever works on it: another one may have its key meanwhile."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress

from antiphon.library import events as e
from antiphon.library import news
from antiphon.library.io.handle import usable
from replica.conversation import Conversation as Held
from replica.conversation import KeyedRun, entries_of
from replica.ids import ConversationId, EntryId
from replica.io import AnswerWatch, Delta, Discarded, Finished, Replica
from replica.link import DraftReceived, EntriesAdmitted, Event
from replica.log import Kind

_OF_TURN = (e.Asked, e.Sealed, e.Forked, e.ToolCalled, e.Answered, e.Refused)
_OF_CALLS = (e.ToolCalled, e.ToolStarted, e.ToolDone)
"""Of what is said behind an answer: anybody may have said the rest."""


class RunNews:
    """The entries of a run as events, with the drafts of its answers in their place.

    It compares what the log and the drafts hold with what it has shown. So it makes no
    difference to it who works on the run, and nothing is shown twice where that changes.
    """

    def __init__(self, replica: Replica, conversation: ConversationId) -> None:
        """Listen until `stop`. Raises ReplicaClosed, LoopUnsuitable."""
        self._replica = usable(replica)
        self._conversation = conversation
        self._shown: set[EntryId] = set()
        self._collected: deque[e.Event] = deque()
        """Events to yield; the run may lapse between two of them."""
        self._has_begun = False
        self._kept: list[e.Event] = []
        """Drafts of an answer whose Sealed is not shown yet."""
        self._watched: tuple[EntryId, AnswerWatch] | None = None
        self._has_whole = False
        """Whether the watch has told the end of the answer, which it tells again when asked."""
        self._awake = asyncio.Event()
        self._stop_listening = replica.listen(self._receive)

    def stop(self) -> None:
        """Listen no more."""
        self._stop_listening()
        self._unwatch()

    async def begin(self, run: KeyedRun) -> None:
        """Take what the log holds of the run for known, at the first call.

        Of an answer in progress all drafts are news, from the first one that is known here.
        """
        if not self._has_begun:
            self._has_begun = True
            self._shown.update(entries_of(await self._held(), run))

    async def wait(self, timeout_s: float) -> None:
        """Wait for what may be news, at most `timeout_s` seconds.

        Raises ReplicaClosed, LoopUnsuitable.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._awake.wait()
        self._awake.clear()
        usable(self._replica)

    async def collected(self, run: KeyedRun) -> AsyncGenerator[e.Event, None]:
        """Yield the events of the run since the last call, once their entries are durable.

        The drafts of an answer come behind its Sealed and before the answer; together, from the
        last Discarded on, they are its text. Raises what `AnswerWatch.news` raises. Called while
        an earlier call is not read to its end, it goes on with the events of that.
        """
        await self._collect(run)
        while self._collected:
            yield self._collected.popleft()

    async def _collect(self, run: KeyedRun) -> None:
        for at in await self._new_entries(run):
            held = await self._held()
            entry = held.log.entries[at]
            is_answer = entry.header.kind == Kind.GENERATION
            request = news.request_of(held, entry) if is_answer else None
            if request is not None:
                self._collected += await self._drafts(request, is_whole=True)
                self._unwatch()
            self._shown.add(at)
            self._collected += self._events_of(held, run, at)
        request = run.requests[-1] if run.requests else None
        if request is not None and not self._is_answered(await self._held(), request):
            self._collected += await self._drafts(request)

    def watch_of(self, request: EntryId) -> AnswerWatch:
        """Return the watch of the answer to a request, until another request is asked for."""
        if self._watched is None or self._watched[0] != request:
            self._unwatch()
            watch = AnswerWatch(self._replica, self._conversation, request)
            self._watched = (request, watch)
        return self._watched[1]

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._watched[1].stop()
        self._watched, self._kept, self._has_whole = None, [], False

    def _receive(self, event: Event) -> None:
        match event:
            case EntriesAdmitted(conversation) if conversation != self._conversation:
                return
            case DraftReceived(draft) if draft.conversation != self._conversation:
                return
            case _:
                self._awake.set()

    async def _new_entries(self, run: KeyedRun) -> list[EntryId]:
        """Return the entries to show, durable here.

        The log is asked, since its events come later: once its entries are durable.
        """
        found = [at for at in entries_of(await self._held(), run) if at not in self._shown]
        if found:
            await self._replica.flush()
        return found

    async def _drafts(self, request: EntryId, *, is_whole: bool = False) -> list[e.Event]:
        """Return what is new of an answer's text; it is kept while the Sealed is not shown."""
        watch = self.watch_of(request)
        for event in await watch.news() if not self._has_whole else ():
            match event:
                case Delta(text):
                    self._kept.append(e.Draft(text, request, self._conversation))
                case Discarded():
                    self._kept.append(e.Discarded(request, self._conversation))
                case Finished():
                    self._has_whole = True
                case _:
                    pass
        seal = (await self._held()).order.seal_of.get(request)
        if not is_whole and seal not in self._shown:
            return []
        drafts, self._kept = self._kept, []
        return drafts

    def _is_answered(self, held: Held, request: EntryId) -> bool:
        """Say whether the answer to a request is shown."""
        return held.order.generation_of(request) in self._shown

    def _events_of(self, held: Held, run: KeyedRun, at: EntryId) -> Iterator[e.Event]:
        entry = held.log.entries[at]
        own: tuple[type, ...] = _OF_CALLS
        if at == run.message:
            own = (e.Said,)
        elif entry.header.kind != Kind.MESSAGE:
            own = _OF_TURN
        for event in news.events_of(held, (entry,), self._replica.public):
            if isinstance(event, own):
                yield event

    async def _held(self) -> Held:
        return await self._replica.load(self._conversation)
