"""The events of a replica as an endless iterator: entries, drafts, and changes of the link."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import finalize, ref

from antiphon.library import events as e
from antiphon.library import news
from antiphon.library.errors import EventsMissed, ReplicaClosed
from antiphon.library.io.handle import check_loop, usable
from antiphon.library.io.steps import Items
from antiphon.library.unread import Unread
from replica.ids import ConversationId, EntryId
from replica.io import Replica
from replica.link import (
    DraftReceived,
    EntriesAdmitted,
    Event,
    Forgotten,
    HostsLearned,
    StateChanged,
    Welcomed,
)

QUEUED_MAX = 10_000
"""Events kept for a reader that does not read, once the drafts of each answer are one."""


class Feed:
    """The events since a moment, of one conversation or of all.

    It collects from its creation on, until `stop`, or until nobody can read it any more;
    reading may begin later.
    """

    def __init__(self, replica: Replica, conversation: ConversationId | None = None) -> None:
        """Collect the events of a conversation, or of all. Raises ReplicaClosed, LoopUnsuitable."""
        self._replica = replica
        self._conversation = conversation
        self._unread = Unread(QUEUED_MAX)
        self._may_be_gone = False
        """Whether to look if the conversation is still here."""
        self._awake = asyncio.Event()
        self._runs: dict[ConversationId, dict[EntryId, int]] = {}
        """The run of each request whose answer is being drafted."""
        self._lost: dict[ConversationId, int] = {}
        """The entries that are lost, of each conversation that lost any."""
        usable(self._replica)
        self._listener = _Listener(self)
        # An iterator that was never begun has no end of its own when it is dropped.
        self.stop: Callable[[], object] = finalize(self, replica.listen(self._listener))

    def check_loop(self) -> None:
        """Refuse what another event loop reads. Raises LoopUnsuitable, ReplicaClosed."""
        check_loop(self._replica)

    def collected(self) -> list[e.Event]:
        """Return the events since the last call."""
        self._awake.clear()
        return self._unread.taken()

    def wake(self) -> None:
        """Let whoever waits look again."""
        self._awake.set()

    async def more(self) -> None:
        """Wait until there is something to collect, or somebody is to look again.

        Raises ReplicaClosed, LoopUnsuitable, and ConversationUnknown once the conversation was
        deleted here.
        """
        usable(self._replica)
        await self._check_here()
        with self._listener.holding(self):
            await self._awake.wait()

    def check_none_missed(self) -> None:
        """Raise EventsMissed if more events came than are kept."""
        if self._unread.is_full:
            raise EventsMissed(
                f"{QUEUED_MAX:,} events waited unread, and none was kept behind them"
            )

    def events(self) -> "FeedEvents":
        """Return an iterator over events as they come, until the replica ends."""
        self._may_be_gone = True
        return FeedEvents(self)

    async def _check_here(self) -> None:
        """Look if the conversation is still here, in memory or in the store.

        Raises ConversationUnknown, StoreError.
        """
        if self._may_be_gone and self._conversation is not None:
            self._may_be_gone = False
            try:
                await self._replica.load(self._conversation)
            except asyncio.CancelledError:
                self._may_be_gone = True
                raise

    def _receive(self, event: Event) -> None:
        match event:
            case EntriesAdmitted(conversation) | StateChanged(conversation):
                if self._conversation not in (None, conversation):
                    return
            case DraftReceived(draft) if self._conversation not in (None, draft.conversation):
                return
            case Forgotten(conversation) if self._conversation == conversation:
                self._may_be_gone = True
            case _:
                pass
        self._unread.add(self._translated(event))
        if self._unread.is_full:
            self.stop()
        if self._unread or self._may_be_gone or self._replica.is_closed:
            self._awake.set()

    def _end_runs(self, conversation: ConversationId, found: list[e.Event]) -> None:
        """Forget the runs of requests that are answered or refused."""
        runs = self._runs.get(conversation, {})
        for event in found:
            match event:
                case e.Answered(answer):
                    runs.pop(answer.request, None)
                case e.Refused(request=request):
                    runs.pop(request, None)
                case _:
                    pass

    def _translated(self, event: Event) -> list[e.Event]:
        match event:
            case EntriesAdmitted(conversation, entries):
                held = self._replica.shelf.get(conversation)
                if held is None:
                    return []
                found = list(news.events_of(held, entries, self._replica.public))
                self._end_runs(conversation, found)
                lost = len(held.damage.missing)
                before = self._lost.pop(conversation, lost)
                if lost:
                    self._lost[conversation] = lost
                return [*found, e.Repaired(before - lost, conversation)] if before > lost else found
            case StateChanged(conversation, state):
                return [e.SyncChanged(state.value, conversation)]
            case DraftReceived(draft):
                found, runs = [], self._runs.setdefault(draft.conversation, {})
                if runs.setdefault(draft.request, draft.run) != draft.run:
                    runs[draft.request] = draft.run
                    found.append(e.Discarded(draft.request, draft.conversation))
                if draft.data:
                    text = draft.data.decode(errors="replace")
                    found.append(e.Draft(text, draft.request, draft.conversation))
                return found
            case Forgotten(conversation):
                self._runs.pop(conversation, None)
                self._lost.pop(conversation, None)
                return []
            case Welcomed() | HostsLearned():
                return [e.HostChanged(tuple(host.key for host in self._replica.hub.hosts))]
            case _:
                return []


class FeedEvents(Items[e.Event]):
    """The events of a feed; what comes behind a cancelled wait is there for the next one."""

    def __init__(self, feed: Feed) -> None:
        """Read the feed."""
        self._feed = feed
        self._found: deque[e.Event] = deque()
        self._lock = asyncio.Lock()
        self._is_ended = False

    async def __anext__(self) -> e.Event:
        """Return the next event. Raises StopAsyncIteration once it is closed.

        Raises ReplicaClosed, LoopUnsuitable, EventsMissed behind the last event that was kept, and
        ConversationUnknown once the conversation was deleted here; each ends it, but for
        LoopUnsuitable.
        """
        self._feed.check_loop()
        async with self._lock:
            while not self._is_ended:
                if self._found:
                    return self._found.popleft()
                try:
                    await self._look()
                except Exception:
                    await self.aclose()
                    raise
            raise StopAsyncIteration

    async def _look(self) -> None:
        self._found.extend(self._feed.collected())
        if not self._found:
            self._feed.check_none_missed()
            await self._feed.more()

    async def aclose(self) -> None:
        """End it; a task that waits for an event leaves its loop. Raises LoopUnsuitable."""
        try:
            self._feed.check_loop()
        except ReplicaClosed:
            return  # it has ended with its replica
        self._is_ended = True
        self._found.clear()
        self._feed.stop()
        self._feed.wake()


class _Listener:
    """Passes events to a feed, which it keeps only while the iterator over it waits."""

    def __init__(self, feed: Feed) -> None:
        self._feed = ref(feed)
        self._held: Feed | None = None

    def __call__(self, event: Event) -> None:
        if (feed := self._feed()) is not None:
            feed._receive(event)

    @contextmanager
    def holding(self, feed: Feed) -> Iterator[None]:
        """Keep the feed, through which the replica reaches the task that waits.

        The event loop keeps no task. One that its program does not keep either would be
        reachable from the feed alone, and be collected while it waits.
        """
        self._held = feed
        try:
            yield
        finally:
            self._held = None
