"""The driver of a host: follows conversations, answers requests (spec/07-host §4).

model_host/scheduling/schedule.py decides which request is next, and
model_host/io/answers/request_handler.py answers it. A
failure closes the request it belongs to (DECISIONS D57).
"""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import assert_never

import structlog

from model_host.batching import AnswerCounters, RunView
from model_host.errors import HostKeyShared
from model_host.io.answers.answer_writer import request_of
from model_host.io.answers.request_handler import RequestHandler
from model_host.refusals import finish_detail
from model_host.scheduling import (
    Begin,
    Bounds,
    Decision,
    GatherHeads,
    Refuse,
    RefuseExcess,
    Resume,
    Schedule,
)
from replica import limits
from replica.conversation import Conversation
from replica.errors import AntiphonError, HostError, StoreError, Unavailable
from replica.ids import ConversationId, EntryId, short
from replica.io import Repeated, Replica, now_ms
from replica.link import (
    EntriesAcked,
    EntriesAdmitted,
    EntryFailed,
    Event,
    Forgotten,
    StateChanged,
    SyncState,
)
from replica.log import Entry, Join, Kind
from replica.refusals import StoreFull

log = structlog.get_logger()

RETRY_AFTER_S = 1.0
"""Time after which a request is tried again that could not be answered."""
BOUNDS = Bounds(
    running_max=limits.HOST_RUNNING_MAX,
    running_per_owner_max=limits.HOST_RUNNING_PER_OWNER_MAX,
    waiting_per_owner_max=limits.HOST_WAITING_PER_OWNER_MAX,
)
"""The numbers of requests answered at the same time, and of those that wait."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a request could not be answered, which is tried again."""

    conversation: ConversationId
    reason: str
    began_ms: int
    """Unix time at which it was sealed, or failed if it is not sealed."""

    def view(self, request: EntryId, now_ms: int) -> RunView:
        """Return the progress of a request of which nothing is being computed."""
        return RunView(
            self.conversation, request,
            prompt_tokens=0, found_tokens=0, computed_tokens=0, output_tokens=0,
            age_s=max(0, now_ms - self.began_ms) / 1000, first_token_s=None, failure=self.reason,
        )  # fmt: skip


class Host:
    """Answers the requests that name it, several at a time."""

    def __init__(self, replica: Replica, handler: RequestHandler) -> None:
        """Follow conversations through `replica`, which makes answers durable."""
        self._replica = replica
        self._handler = handler
        self._awake = asyncio.Event()
        self._schedule = Schedule(replica.public, BOUNDS)
        self._failures: dict[EntryId, _Failure] = {}
        self._unstored: dict[ConversationId, str] = {}
        """The conversations that the store could not read or write, and its reason. Requests in
        them may not even be known here."""
        self._lines = Repeated()
        self.store_is_full = asyncio.Event()
        """Set whenever the store has no room for the log."""
        self._excess: asyncio.Queue[tuple[Conversation, RefuseExcess]] = asyncio.Queue()
        self._compared: set[ConversationId] = set()
        """The conversations in memory that were equal to the hub's once: what an earlier process
        of this host wrote is here, whatever comes while they are compared again."""
        replica.listen(self._receive)

    @property
    def counters(self) -> AnswerCounters:
        """Counts of answered requests since start."""
        return self._handler.counters

    @property
    def running(self) -> int:
        """Number of requests being answered now."""
        return self._schedule.running

    @property
    def waiting(self) -> int:
        """Number of requests waiting now, without those being answered."""
        return self._schedule.waiting(self._replica.shelf.values())

    @property
    def conversations(self) -> dict[str, int]:
        """Number of conversations that the hub lists: open ones, and others by the reason."""
        selection = self._replica.on_demand.selection
        left_out = {reason.value: count for reason, count in selection.left_out().items()}
        return {"open": len(selection.open)} | left_out

    @property
    def unstored(self) -> Counter[str]:
        """Number of conversations that the store can't read or write now, by reason."""
        failing = {one.conversation: one.reason for one in self._failures.values()}
        return Counter((self._unstored | failing).values())

    def unstored_reason(self, conversation: ConversationId) -> str | None:
        """Return why the store can't read or write a conversation now, None where it can."""
        return self._unstored.get(conversation)

    def views(self) -> list[RunView]:
        """Return the progress of the requests, the one that runs longest first."""
        found = {view.request: view for view in self._handler.runs.views()}
        now = now_ms()
        for request, failure in self._failures.items():
            found.setdefault(request, failure.view(request, now))
        return sorted(found.values(), key=lambda view: -view.age_s)

    def _receive(self, event: Event) -> None:
        runs = self._handler.runs
        match event:
            case EntriesAdmitted(conversation, entries):
                if not all(map(self._is_own_answer, entries)):
                    self._awake.set()
                held = self._replica.shelf.get(conversation)
                if held is not None and conversation in self._compared:
                    self._handler.note_seals(held, entries)
                runs.handle_admitted(conversation)
            case EntriesAcked(conversation, positions):
                runs.handle_acked(conversation, (position.id for position in positions))
            case EntryFailed(conversation, None, fault, is_own=True):
                self._unstored[conversation] = fault.reason
                self._note_full(fault.reason)
            case EntryFailed(conversation, None):
                self._end_untaken(conversation)
            case StateChanged(conversation, SyncState.SYNCHRONIZED):
                self._awake.set()
                self._unstored.pop(conversation, None)
                self._compared.add(conversation)
                runs.handle_synchronized(conversation)
                held = self._replica.shelf.get(conversation)
                if held is not None:
                    # Deletion is tried again with the next link; the journals do no harm.
                    with suppress(StoreError):
                        self._handler.forget_answered(held)
            case Forgotten(conversation):
                self._compared.discard(conversation)
                self._unstored.pop(conversation, None)
            case _:
                pass

    def _end_untaken(self, conversation: ConversationId) -> None:
        """End the runs of a conversation that was deleted, or that this host was removed from.

        A hub that lost it is sent it first, and denies it only if it takes nothing then.
        """
        held, hub = self._replica.shelf.get(conversation), self._replica.hub
        if held is None or hub.state(conversation) is not SyncState.DENIED:
            return
        try:
            hub.check_taken(held)
        except AntiphonError as error:
            self._handler.runs.handle_ended(conversation, finish_detail(error))

    def _note_full(self, reason: str) -> None:
        if reason == StoreFull.reason:
            self.store_is_full.set()

    def _is_own_answer(self, entry: Entry) -> bool:
        # The end of the decision that wrote it wakes the host.
        header = entry.header
        return header.kind == Kind.GENERATION and header.author == self._replica.public

    async def run(self) -> None:
        """Answer requests until cancelled."""
        async with asyncio.TaskGroup() as answers:
            answers.create_task(self._refuse_excess())
            while True:
                self._awake.clear()
                now = now_ms()
                decision = self._schedule.start_next(
                    self._replica.shelf.values(),
                    is_synchronized=self._is_synchronized,
                    now_ms=now,
                )
                if decision is None:
                    await self._sleep(self._schedule.next_expiry_ms(now))
                    continue
                held = self._replica.shelf[decision.conversation]
                if isinstance(decision, RefuseExcess):
                    self._excess.put_nowait((held, decision))
                else:
                    answers.create_task(self._carry_out(held, decision))
                    await asyncio.sleep(0)  # calls and links have their turns between two decisions

    async def _refuse_excess(self) -> None:
        """Refuse what is beyond the bounds, one request at a time beside all else."""
        while True:
            await self._carry_out(*await self._excess.get(), wakes=self._excess.empty())

    async def _sleep(self, until_ms: int | None) -> None:
        """Wait for an event, until a moment of Unix time at most."""
        timeout_s = max(0, until_ms - now_ms()) / 1000 if until_ms is not None else None
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._awake.wait()

    async def _carry_out(
        self, held: Conversation, decision: Decision, *, wakes: bool = True
    ) -> None:
        with self._replica.on_demand.using(held.id):
            if await self._serve(held, decision):
                self._schedule.end(decision.request)
            else:
                # Another process answers it, or even a refusal can't be appended. The next start
                # tries again.
                self._schedule.give_up(decision.request)
        if wakes:
            self._awake.set()

    def _is_synchronized(self, conversation: ConversationId) -> bool:
        return self._replica.hub.state(conversation) is SyncState.SYNCHRONIZED

    async def _serve(self, held: Conversation, decision: Decision) -> bool:
        """Act on a decision, or close its request if that fails; return False if both fail.

        An error that one request causes would otherwise recur at every start of the host,
        and stop the answers of all other conversations too.
        """
        failure: Exception = HostError()
        for is_first in (True, False):
            try:
                if is_first:
                    await self._act(held, decision)
                else:
                    await self._handler.close_request(held, decision.request, failure)
            except (StoreError, Unavailable) as error:
                # The log can't be written now, as on a full disk; the request stays open.
                await self._pause(held, decision, error)
                return True
            except HostKeyShared:
                # Said when its seal came. Closing it would interrupt that process's answer.
                return False
            except Exception as error:  # logged, and named in the refusal
                if self._replica.shelf.get(held.id) is not held:
                    # The store refused its last entries, which the request may be one of. It was
                    # read again, and what the hub sends of them is decided anew.
                    return True
                log.exception(
                    "answering failed",
                    conversation=short(held.id),
                    request=short(decision.request),
                )
                failure = error
            else:
                return True
        return False

    async def _act(self, held: Conversation, decision: Decision) -> None:
        match decision:
            case Begin(_, ready):
                entries = len(held.log)
                if not await self._handler.begin(held, ready):
                    request = request_of(held, ready.request)
                    self._schedule.wait(ready.request, entries, request.answer_by_ms)
            case Resume(_, request_id):
                await self._handler.resume(held, request_id)
            case Refuse():
                await self._handler.refuse(held, decision)
            case GatherHeads(_, _, heads):
                await self._replica.append(held.id, Join(), parents=heads)
            case _:
                assert_never(decision)

    async def _pause(self, held: Conversation, decision: Decision, error: AntiphonError) -> None:
        """Let time pass before a request is tried again that the log could not take."""
        if times := self._lines.due(error.reason):
            log.warning("could not answer", reason=error.reason, detail=error.detail, times=times)
        self._note_full(error.reason)
        seal = held.order.seal_of.get(decision.request)
        began_ms = held.log.entries[seal].header.create_time_ms if seal is not None else now_ms()
        self._failures[decision.request] = _Failure(held.id, error.reason, began_ms)
        try:
            await asyncio.sleep(RETRY_AFTER_S)
        finally:
            del self._failures[decision.request]
