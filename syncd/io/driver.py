"""Drives the hub core: store, clock, and the order of effects (spec/04-link §7)."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from replica import limits
from replica.commits import Conversations
from replica.conversation import Conversation
from replica.errors import StoreError
from replica.ids import ConversationId, PublicKey
from replica.io import Blobs, Performer, Store
from replica.link import Close, Entries, Fault, Frame, Link, Message, conversation_of
from syncd.bounds import Accountant, Budget, RunningCalls, Streams
from syncd.calls import Outcomes, Right
from syncd.hub import Hub, with_fault
from syncd.io.blob_stores import BlobStores
from syncd.io.deletions import Deletions
from syncd.io.folds import Folds
from syncd.io.loader import Loader
from syncd.io.memory import Drop, Memory
from syncd.io.pacer import Pacer
from syncd.io.record_keeper import RecordKeeper
from syncd.io.resumes import Resumes
from syncd.io.throttle import CALL_BYTES, Throttle
from syncd.links import Answered, Hint, HubEffects, LinkId, list_more
from syncd.measures import HubCounters
from syncd.open_logs import release_logs
from syncd.refused_entries import note_stored, take_back

log = structlog.get_logger()

TICK_S = 1.0
"""Interval between checks of deadlines, which are tens of seconds long."""

_Answer = TypeVar("_Answer")

Sink = Callable[[Frame | Hint | Answered | None], None]
"""Receives a link's frames in order; None ends the link. Never blocks."""


class HubDriver:
    """The hub core with its store and its clock."""

    def __init__(
        self,
        hub: Hub,
        store: Store,
        blobs: Blobs | BlobStores,
        calls_max: int = limits.STREAMS_MAX,
    ) -> None:
        """Use the caller's hub, store and blobs; the server opens and closes them.

        `calls_max` bounds the streams of all keys, and the transfers too.
        """
        self.hub = hub
        self.store = store
        self.blobs = blobs
        self.counters = HubCounters()
        self.streams = Streams(hub.policy.links_per_key_max, total_max=calls_max)
        self.transfers = Streams(limits.TRANSFERS_PER_KEY_MAX, total_max=calls_max)
        """The Fetches and transfers of blobs that run."""
        self.calls = RunningCalls()
        """The unary calls that run."""
        self.throttle = Throttle(hub, Budget())
        self.pacer = Pacer(self.throttle.payer_of)
        self.memory = Memory(hub, Accountant())
        self.performer = Performer(store, self._undo)
        self._deletions = Deletions(hub, store, blobs, self.performer, self._submit)
        self._sinks: dict[LinkId, Sink] = {}
        self._backlog_bytes: dict[LinkId, int] = {}
        self._refusal = Fault.of(StoreError("the disk refused entries"))
        """The last refusal of the disk."""
        self.folds = Folds(hub, self.pacer, self._submit)
        self._keeper = RecordKeeper(hub, store)
        written = self.performer.written
        self._loader = Loader(
            hub, store, self._submit, self.pacer, self.folds, self._keeper, written
        )
        prepare = self._loader.prepare
        self._resumes = Resumes(hub, self.pacer, self.folds, prepare, self._submit)
        self.keep = self._loader.kept
        """Keep a conversation in memory while a context lasts."""
        self._ticker: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Finish interrupted deletions, load the stored conversations, start the tasks."""
        await self._deletions.finish()
        await self._loader.load_all()
        self.throttle.note_established()
        await self._deletions.count()
        await self.blobs.count_with(self.hub.disk)
        if self.store.lost_count:
            log.error(
                "the end of the store was lost, members send entries again when they link,"
                " antiphon repair brings deletions back",
                count=self.store.lost_count,
            )
        self.performer.start()
        self._keeper.start()
        self._ticker = asyncio.create_task(self._tick(), name="hub deadlines")

    async def stop(self) -> None:
        """Perform the queued effects, then stop."""
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        await self._deletions.stop()
        await self.folds.stop()
        await self._resumes.stop()
        await self._loader.stop()
        await self.performer.stop()
        await self._keeper.stop()

    async def failed(self) -> None:
        """Raise the error that ended one of the hub's permanent tasks."""
        assert self._ticker is not None, "start() comes first"
        await asyncio.gather(
            self.performer.failed(), self._keeper.failed(), asyncio.shield(self._ticker)
        )

    # --- links --------------------------------------------------------------

    def connect(
        self, peer: PublicKey, sink: Sink, *, watches: bool = False, drop: Drop | None = None
    ) -> LinkId:
        """Add a link; its frames and, for a watcher, hints go to `sink`.

        `drop` ends its stream if it occupies too much memory.
        """
        link_id = self.hub.connect(peer, time.monotonic(), watches=watches)
        self.memory.begin(link_id, peer, drop or (lambda _error: None))
        self._sinks[link_id] = sink
        self._backlog_bytes[link_id] = 0
        return link_id

    def disconnect(self, link_id: LinkId) -> None:
        """Remove a link; do nothing when repeated."""
        self._sinks.pop(link_id, None)
        self._backlog_bytes.pop(link_id, None)
        self.throttle.answered.pop(link_id, None)
        self.memory.end(link_id)
        self.hub.disconnect(link_id)

    async def receive(self, link_id: LinkId, message: Message, frame_bytes: int) -> None:
        """Pass a link's message to the core and queue its effects.

        Returns late if the disk is slower than the link. Not reading the next
        frame is the only flow control that a peer can't ignore.
        """
        conversation, link = conversation_of(message), self.hub.links.get(link_id)
        began = time.monotonic()
        if conversation is None or link is None or link.peer is None:
            done = await self._receive_about_link(link_id, message, frame_bytes)
        else:
            if frame_bytes:
                await self.throttle.wait(link.peer, conversation, message)
            await self._loader.prepare(link, link.peer, message)
            done = await self._receive_in_parts(link_id, link, conversation, message, frame_bytes)
        self.counters.bytes_in += frame_bytes
        appended_at = began if isinstance(message, Entries) else None
        if done.done():
            self._note_done(link_id, 0, appended_at)
            return
        done.add_done_callback(lambda _: self._note_done(link_id, frame_bytes, appended_at))
        if frame_bytes and link_id in self._backlog_bytes:
            self._backlog_bytes[link_id] += frame_bytes
            if self._backlog_bytes[link_id] > limits.BACKLOG_BYTES_MAX:
                await asyncio.wait((done,))

    async def _receive_in_parts(
        self,
        link_id: LinkId,
        link: Link,
        conversation: ConversationId,
        message: Message,
        frame_bytes: int,
    ) -> "asyncio.Future[None]":
        assert link.peer is not None, "links of a hub are authenticated"
        peer, submitted = link.peer, list[asyncio.Future[None]]()

        def receive(part: Message) -> None:
            counted_bytes = 0 if submitted else frame_bytes  # a frame counts once
            effects = self.throttle.charged(
                peer,
                conversation,
                part,
                lambda: self.hub.receive(link_id, part, time.monotonic(), counted_bytes),
            )
            self.throttle.charge_answer(link_id, peer, effects)
            self.memory.note_received(link_id, link, conversation)
            submitted[:] = [self._submit(effects)]

        await self._loader.in_parts(peer, conversation, message, receive)
        return submitted[0]

    async def _receive_about_link(
        self, link_id: LinkId, message: Message, frame_bytes: int
    ) -> "asyncio.Future[None]":
        """Pass on a message about no conversation.

        A Hello begins a list, and a Credit may continue it or a long answer.
        """
        link, answered = self.hub.links.get(link_id), self.throttle.answered.get(link_id)
        peer = link.peer if link is not None else None
        if peer is not None and answered is not None:
            await self.throttle.wait(peer, answered, message)
        if link is not None and peer is not None:
            await self._loader.prepare(link, peer, message)
        effects = self.hub.receive(link_id, message, time.monotonic(), frame_bytes)
        if link is not None and peer is not None:
            self.throttle.charge_answer(link_id, peer, effects)
            if answered is not None:
                self.memory.note_received(link_id, link, answered)
        done = self._submit(effects)
        while peer is not None and self.hub.connected.is_list_due(link_id):
            await self.pacer.step(peer)
            effects = list_more(self.hub.connected, self.hub.shelf, link_id)
            self.throttle.charge_answer(link_id, peer, effects)
            done = self._submit(effects)
        return done

    def _note_done(self, link_id: LinkId, size: int, appended_at: float | None) -> None:
        """Release a frame's bytes; note how long its entries took to be durable."""
        if appended_at is not None:
            self.counters.note_append(time.monotonic() - appended_at)
        if link_id in self._backlog_bytes:
            self._backlog_bytes[link_id] -= size

    async def push(
        self, peer: PublicKey, message: Entries, answer: Callable[[Outcomes], _Answer]
    ) -> _Answer:
        """Append without a link; return once all admitted entries are durable.

        The answer is made of the outcomes before, while the conversation is in memory. Raises
        RateLimited, StoreError.
        """
        began, conversation = time.monotonic(), message.conversation
        self.throttle.check(peer, conversation, message)
        durable = list[asyncio.Future[None]]()
        pushing = self.hub.begin_push(peer)

        def receive(part: Message) -> None:
            assert isinstance(part, Entries), "parts of entries are entries"
            effects = self.throttle.charged(
                peer, conversation, part, lambda: pushing.receive(part, began)
            )
            durable.append(self._submit(effects, conversation))

        try:
            await self._loader.in_parts(peer, conversation, message, receive)
            outcomes = pushing.outcomes(conversation)
            if pushing.has_waited:  # such an entry is durable with what it waited for
                durable.append(self._submit(HubEffects(), conversation))
        finally:  # of a call that is cancelled, the part that has begun goes on
            self.folds.after(conversation, pushing.end)
        refused = next((fault for fault in outcomes.values() if fault is not None), None)
        for entry_id in message.ids:  # of a stranger, the parts behind a refused one
            outcomes.setdefault(entry_id, refused)
        answered = answer(outcomes)
        for done in durable:
            await done
        self.counters.note_append(time.monotonic() - began)
        for fault in outcomes.values():
            if fault is not None:
                self.counters.note_refusal(fault)
        return answered

    # --- queries --------------------------------------------------------------

    async def permitted(
        self, peer: PublicKey, conversation: ConversationId, right: Right = Right.READ
    ) -> Conversation:
        """Return a conversation, loaded if necessary; see Hub.permitted. Raises RateLimited too."""
        self.throttle.check(peer, conversation)
        self.throttle.charge(peer, conversation, sent_bytes=CALL_BYTES)
        await self.pacer.step(peer)
        await self._loader.ensure_loaded(peer, conversation)
        return self.hub.permitted(peer, conversation, right)

    # --- streams --------------------------------------------------------------

    @contextmanager
    def hold(self, peer: PublicKey, connection: str, finish: Drop, release: Drop) -> Iterator[None]:
        """Count a Link or Watch stream until its call ends; see Streams. Raises RateLimited."""
        stream = self.streams.begin(peer, connection, time.monotonic(), finish, release)
        try:
            yield
        finally:
            self.streams.end(stream)

    def renew(self, peer: PublicKey, connection: str) -> None:
        """Extend the streams of a key that was proved again on this connection."""
        self.streams.renew(peer, connection, time.monotonic())

    # --- deletion -------------------------------------------------------------

    async def delete(self, peer: PublicKey, conversation: ConversationId) -> int:
        """Delete a conversation for good and close it on its links; return its entry count.

        Bytes that a full disk keeps are erased once it has room. Raises the errors of
        Hub.permitted, and StoreError: then nothing is deleted. A caller that is cancelled does
        not stop what has begun.
        """
        await self._deletions.decided(conversation)
        entries = len((await self.permitted(peer, conversation, Right.DELETE)).log)
        self.memory.forget_drafts((conversation,))
        await self._deletions.delete(conversation)
        return entries

    # --- effects --------------------------------------------------------------

    def _submit(
        self, effects: HubEffects, conversation: ConversationId | None = None
    ) -> "asyncio.Future[None]":
        self._resumes.go_on()
        lost, named = self.hub.shelf.folding.lost, set[ConversationId]()
        if lost or not effects.persist:
            stated = (conversation, *(conversation_of(frame) for _, frame in effects.send))
            named.update(one for one in stated if one is not None)
        if lost and not lost.isdisjoint(named | {e.conversation for e in effects.persist}):
            self._send(effects, lost)
            return _refused(StoreError("the disk refused entries that these follow"))
        about = set[ConversationId]() if effects.persist else named  # with any, it fails with any
        return self.performer.submit(effects.persist, partial(self._send, effects), about)

    def _send(self, effects: HubEffects, lost: Conversations = frozenset()) -> None:
        refused = [one for one in effects.persist if one.conversation in lost] if lost else ()
        if refused:
            take_back(self.hub, refused)
        else:
            note_stored(self.hub, effects.persist)
        if effects.persist:
            self._keeper.note(effects.persist)
        self.counters.entries += len(effects.persist) - len(refused)
        for link_id, frame in effects.send:
            sink = self._sinks.get(link_id)
            if sink is not None and conversation_of(frame) not in lost:
                sink(frame)
            elif sink is not None and isinstance(frame.message, Close):
                sink(with_fault(frame, replace(self._refusal, conversation=conversation_of(frame))))
        news: tuple[tuple[LinkId, Hint | Answered], ...] = (*effects.answered, *effects.hints)
        for link_id, item in news:
            sink = self._sinks.get(link_id)
            if sink is not None and item.conversation not in lost:
                sink(item)
        for link_id in effects.closed:
            sink = self._sinks.get(link_id)
            if sink is not None:
                sink(None)
        if self.hub.shelf.is_over_bound:
            self._evict()

    def _undo(self, error: StoreError, lost: Conversations) -> None:
        """Report the refused commit to the core; send at once, since all queued work fails."""
        self.counters.commits_refused += 1
        self._refusal = Fault.of(error.for_peer())
        self._send(self.hub.disk_refused(lost, self._refusal))
        self.memory.forget_drafts(lost)

    def _evict(self) -> None:
        busy = self.performer.writing | self._loader.asked
        self.memory.forget_drafts(self.hub.evict(busy))
        if self.hub.shelf.bytes_over:
            self._submit(release_logs(self.hub.connected, self.hub.shelf, busy))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            self.streams.handle_deadlines(now)
            self._submit(self.hub.handle_deadlines(now))
            self._evict()


def _refused(error: StoreError) -> "asyncio.Future[None]":
    """Return what waits for a commit that is refused before it begins."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_exception(error)
    done.exception()  # seen: most callers do not await, and the writers still hold the entries
    return done
