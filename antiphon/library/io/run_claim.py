"""The claims of a run, on its key and on its requests (DECISIONS D343, D368).

With the claim on the key one run at a time goes on under it. By the claims on its requests
others see that a run works on their calls.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager

import anyio
import anyio.lowlevel

from antiphon.library import events as e
from antiphon.library.errors import CallOpen, RunUnfinished
from antiphon.library.io.run_news import RunNews
from antiphon.library.io.steps import BEHIND_TOOL
from antiphon.library.io.tool_calls import is_performed_here
from replica.conversation import Conversation as Held
from replica.conversation import (
    KeyedRun,
    OpenCall,
    Perform,
    Place,
    Step,
    calls_ahead,
    key_digest,
    queued_place,
)
from replica.errors import AntiphonError, with_step
from replica.ids import ConversationId, EntryId, short
from replica.io import LOOK_AGAIN_S, AnswerOverdue, AnswerWatch, Replica, was_stopped
from replica.log import Conflict

CLAIM_S = 0.5
"""Seconds within which a run claims a request that it has written."""
LEFT_TURNS = 10
"""Turns of the event loop in which it closes a run whose `async for` was just left."""
UNREAD_S = 30.0
"""Seconds after which a run whose events nobody reads lets another one go on."""
GONE_S = 5.0
"""Seconds without a claim after which a turn that is in the log waits no more for a run."""
_ASK_ELSEWHERE = "Ask by `at(entry)`, or in another conversation, or once the tool has returned."
_IN_LOG = "this turn is in the log and waits until the call is closed"


class RunClaim:
    """The claims of one run; others follow it meanwhile."""

    def __init__(
        self,
        replica: Replica,
        conversation: ConversationId,
        key: str | None,
        reached: Callable[[], Awaitable[tuple[KeyedRun, Step, int]]],
        silence_max_s: float | None = None,
    ) -> None:
        """Claim nothing yet; without a key nobody else can go on with the run.

        `reached` returns how far the run is, whoever works on it.
        """
        self._reached = reached
        self._replica = replica
        self._conversation = conversation
        self._name = conversation + key_digest(replica.public, key) if key is not None else None
        self._silence_max_s = silence_max_s
        self._is_held = False
        self._is_needed = False
        self._has_lapsed = False
        self._requests: set[EntryId] = set()

    async def followed(self, news: RunNews) -> AsyncGenerator[e.Event, None]:
        """Yield what another run does while it has the claim; it is held at the end.

        Raises AnswerOverdue if the other run does not go on for too long. In a tool of the other
        run, which goes on behind the tool alone, raises CallOpen, or RunUnfinished if the tool has
        closed its own call.
        """
        heard_at, known = time.monotonic(), None
        while not self._is_claimed():
            reached = await self._reached()
            run, step, _ = reached
            if any(map(is_performed_here, run.requests)):
                raise _of_own_run(step)
            await news.begin(reached[0])
            async for event in news.collected(reached[0]):
                yield event
            if reached != known:
                heard_at, known = time.monotonic(), reached
            silent_s = time.monotonic() - heard_at
            if self._silence_max_s is not None and silent_s >= self._silence_max_s:
                detail = f"another run has the key, and gave no news for {round(silent_s, 1):g} s"
                raise AnswerOverdue(detail)
            began = time.monotonic()
            await news.wait(LOOK_AGAIN_S)
            waited_s = time.monotonic() - began
            if was_stopped(waited_s, LOOK_AGAIN_S):
                heard_at += waited_s

    async def held_for(
        self,
        events: AsyncGenerator[e.Event | None, None],
        look: Callable[[], Awaitable[None]],
        news: RunNews,
        wanted: Callable[[], Awaitable[None]],
    ) -> AsyncGenerator[e.Event, None]:
        """Yield the events of the run, which has its claims meanwhile (DECISIONS D384).

        In place of None it waits for a reader, as `wanted` does. A run that is not read for
        UNREAD_S loses its claims until the next read; `look` then tells it what another one did.
        """
        async with aclosing(events):
            async for event in events:
                with self._unread():
                    if event is None:
                        await wanted()
                    else:
                        yield event
                if self._has_lapsed:
                    async for other in self.followed(news):
                        yield other
                    self._has_lapsed = False
                    await look()

    @contextmanager
    def needed(self) -> Iterator[None]:
        """Keep the claims, read or not."""
        self._is_needed = True
        try:
            yield
        finally:
            self._is_needed = False

    @contextmanager
    def _unread(self) -> Iterator[None]:
        timer = asyncio.get_running_loop().call_later(UNREAD_S, self._lapse)
        try:
            yield
        finally:
            timer.cancel()

    def _lapse(self) -> None:
        if not self._is_needed:
            self._has_lapsed = True
            self.release()

    def _is_claimed(self) -> bool:
        processes = self._replica.processes
        # Another run of this replica keeps the claim too.
        self._is_held = self._name is None or (
            not processes.is_claimed(self._name) and processes.claim(self._name)
        )
        return self._is_held

    def add(self, requests: Iterable[EntryId]) -> None:
        """Claim requests of the run, so that what they call is known to be worked on."""
        for request in requests:
            if request not in self._requests and self._replica.processes.claim(
                self._conversation + request
            ):
                self._requests.add(request)

    def release(self) -> None:
        """Leave the run to another one."""
        while self._requests:
            self._replica.processes.release(self._conversation + self._requests.pop())
        if self._is_held and self._name is not None:
            self._replica.processes.release(self._name)
        self._is_held = False


async def check_calls_ahead(replica: Replica, conversation: ConversationId, place: Place) -> None:
    """Let a turn be written where it waits behind no call that no run works on.

    A call without a claim is looked at again after CLAIM_S, since its run may be about to
    claim it. Raises CallOpen.
    """
    held = await replica.load(conversation)
    ahead = calls_ahead(held, place)
    _check_own(ahead)
    if ahead and place.conflict is Conflict.FORK:
        raise _never_answered(ahead[0])
    for _ in range(LEFT_TURNS if ahead else 0):
        await anyio.lowlevel.checkpoint()
    if not any(_without_run(replica, held, ahead)):
        return
    await anyio.sleep(CLAIM_S)
    held = await replica.load(conversation)
    for one in _without_run(replica, held, calls_ahead(held, place)):
        raise call_open(one, _whose(replica, held, one))


class CallsAhead:
    """The calls that a turn in the log waits behind, whose runs may end meanwhile.

    Of another member's call nobody here knows whether a run works on it: the turn waits.
    """

    def __init__(self, replica: Replica, request: EntryId) -> None:
        """Look at the calls ahead of a request."""
        self._replica = replica
        self._request = request
        self._gone_at: float | None = None

    def look(self, held: Held) -> float | None:
        """Return the seconds after which to look again, None where nothing is waited behind.

        Raises CallOpen once a call has been `_without_run` for GONE_S.
        """
        ahead = self._calls(held)
        _check_own(ahead)
        gone = next(_without_run(self._replica, held, ahead), None)
        now = time.monotonic()
        if gone is None:
            self._gone_at = None
        elif self._gone_at is None:
            self._gone_at = now
        elif now - self._gone_at >= GONE_S:
            raise call_open(gone, _whose(self._replica, held, gone), _IN_LOG)
        return CLAIM_S if ahead else None

    async def wait(
        self,
        held: Held,
        watch: AnswerWatch,
        silence_max_s: float | None,
        look_again_s: float | None = None,
    ) -> None:
        """Wait for news of the answer, as `AnswerWatch.wait` does, and look meanwhile.

        Raises what that raises, and CallOpen: in place of AnswerOverdue, where the hub is
        linked and another member's call has no result.
        """
        try:
            bounds = [s for s in (self.look(held), look_again_s) if s is not None]
            await watch.wait(silence_max_s, min(bounds, default=None))
        except AnswerOverdue as overdue:
            me, is_linked = self._replica.public, self._replica.hub.is_linked
            for one in self._calls(held) if is_linked else ():
                if one.asked.executor != me:
                    raise call_open(one, _whose(self._replica, held, one), _IN_LOG) from overdue
            raise

    def _calls(self, held: Held) -> tuple[OpenCall, ...]:
        place = queued_place(held, self._request)
        return calls_ahead(held, place) if place is not None else ()


def _without_run(replica: Replica, held: Held, calls: Iterable[OpenCall]) -> Iterator[OpenCall]:
    """Yield the calls that no run is left to finish, as far as that is known here.

    A run of this key has claimed its requests. A key that is no member can't write a result.
    """
    for one in calls:
        executor = one.asked.executor
        if executor == replica.public:
            is_left = replica.processes.is_claimed(held.id + one.request)
        else:
            is_left = held.log.membership.is_member(executor)
        if not is_left:
            yield one


def _check_own(calls: Iterable[OpenCall]) -> None:
    """Refuse a turn that waits for the tool which makes it. Raises CallOpen."""
    for one in calls:
        if is_performed_here(one.request):
            detail = f"'{one.call.name}' would wait for its own end: a tool asks on another branch"
            error = CallOpen(
                f"{detail}, or in another conversation", call_id=one.call.call_id,
                effect_key=one.effect_key, executor=one.asked.executor,
            )  # fmt: skip
            raise with_step(error, _ASK_ELSEWHERE)


def _of_own_run(step: Step) -> AntiphonError:
    """Return the error of a tool that runs under the key of its own run, which is at a step."""
    detail = "this tool runs under the same key"
    if isinstance(step, Perform):
        return call_open(step.calls[0], detail)
    return RunUnfinished(f"{detail}, and the run goes on behind it", next_step=BEHIND_TOOL)


def _whose(replica: Replica, held: Held, one: OpenCall) -> str:
    """Return whose call it is and who ends it; empty for a call of this key."""
    executor = one.asked.executor
    if executor == replica.public:
        return ""
    whose = f"it is call {one.call.call_id} of {short(executor)}"
    if not held.log.membership.is_member(executor):
        return f"{whose}, who is no member any more: an owner may abandon it"
    return f"{whose}, who finishes it; an owner may abandon it"


def _never_answered(one: OpenCall) -> CallOpen:
    """Return the error of a branch that would begin between a call and its result."""
    return CallOpen(
        f"a branch that begins here has no result of '{one.call.name}': begin it behind the result",
        call_id=one.call.call_id,
        effect_key=one.started or one.effect_key,
        executor=one.asked.executor,
    )


def call_open(one: OpenCall, *more: str) -> CallOpen:
    """Return the error of a call without a result."""
    state = "was started, and its result is not known" if one.started else "waits for its run"
    detail = "; ".join(filter(None, (f"'{one.call.name}' {state}", *more)))
    return CallOpen(
        detail,
        call_id=one.call.call_id,
        effect_key=one.started or one.effect_key,
        executor=one.asked.executor,
    )
