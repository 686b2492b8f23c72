"""A run: ask, run the tools the model calls, ask again, until it is done (spec/02-entry §7).

The log says how far a run is; replica/conversation/runs.py decides its next step.
"""

import inspect
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from antiphon.library import events as e
from antiphon.library.errors import RunUnfinished
from antiphon.library.given import Given, Policy, check_text
from antiphon.library.io.call_bound import check_count, next_call
from antiphon.library.io.handle import Handle, append, check_loop
from antiphon.library.io.run_claim import CallsAhead, RunClaim, call_open, check_calls_ahead
from antiphon.library.io.run_news import RunNews
from antiphon.library.io.steps import Items, Reading, Steps
from antiphon.library.io.to_its_end import to_its_end
from antiphon.library.io.tool_calls import call_tool, called, refusal_of
from antiphon.library.io.unpickled import Unpickled
from antiphon.library.news import answer_of
from antiphon.library.tools import Tool, text_of_result
from replica.conversation import (
    Ask,
    AskAnew,
    Await,
    CallStarted,
    Done,
    KeyedRun,
    OpenCall,
    Perform,
    Place,
    Say,
    Step,
    find_run,
    has_started,
    is_last_open,
    is_still_open,
    next_step,
    offered_tools,
    result_place,
    retry_place,
)
from replica.conversation import (
    Conversation as Held,
)
from replica.errors import with_step
from replica.ids import EntryId, tagged_sha256
from replica.io import AwaitedHost, cancels, turns
from replica.log import (
    AnswerRefused,
    Body,
    FinishReason,
    Message,
    Speaker,
    Text,
    ToolCall,
    ToolResult,
    Tools,
    ToolStarted,
    split_finish_detail,
)
from replica.refusals import ArgumentInvalid

POLICY_TAG = b"antiphon/v1/policy-call"
_REPEATED = "CALL_REPEATED"
_ANEW = "Begin a new run."
_IN_LOG = (
    "history() has the answer once it is there; cancel() ends it. Pass results of open calls to"
    " finish(), or abandon() them. Give the next run a key, so that another one can go on with it."
)
_BESIDE = "Go on elsewhere, by `at()`: an answer has read the message, so it can't be withdrawn."
_AGAIN = frozenset({FinishReason.REFUSED, FinishReason.INTERRUPTED})


class Run(Unpickled):
    """One turn in progress: iterate over its events, then read its `answer`.

    Nothing happens until you start to iterate. The events are those of this turn alone: its Said,
    and Asked, Sealed, Draft, Discarded, Forked, ToolCalled, Answered, Refused, ToolStarted and
    ToolDone of its requests. `events` has all others. The drafts of a request after its last
    Discarded are the text of its answer.

    A run under a `key` resumes where an earlier one ended, whatever ended it. If another run has
    the key, this one shows what that one does, and an answer in progress from its beginning. A
    run that has ended has no events any more: `answer` and `result` have its answer. If you stop
    reading, the run keeps its key for 30 seconds, or until the result of a tool that has started.
    After that another run may take over the key; the next read follows that one.

    >>> run, shown = trip.run("Capital of France?", key="job-17"), ""
    >>> async for event in run:
    ...     match event:
    ...         case antiphon.Draft(text):
    ...             shown += text
    ...         case antiphon.Discarded():
    ...             shown = ""
    >>> run.answer.text, run.answer.finish.name
    ('Paris.', 'STOP')
    """

    def __init__(self, conversation: Handle, given: Given) -> None:
        """Use `Conversation.run`."""
        self._at = conversation
        self._replica = conversation.replica
        self._given = given
        self._run = KeyedRun()
        self._claim = RunClaim(
            self._replica, conversation.id, given.key, self._reached, given.timeout_s
        )
        self._answer: e.Answer | None = None
        self._steps = Steps(self._all_steps(), partial(check_loop, self._replica))

    @property
    def answer(self) -> e.Answer:
        """The last answer.

        Raises RunUnfinished if the run has not ended, was closed, or ended with an error.

        >>> run = trip.run("Capital of France?")
        >>> answer = await run.result()
        >>> run.answer.text
        'Paris.'
        """
        if self._answer is None:
            raise _unfinished(self._given, self._run) if self._steps.is_ended else RunUnfinished
        return self._answer

    def __aiter__(self) -> Items[e.Event]:
        """Iterate over the remaining events; leaving the loop closes the run.

        A cancelled read, as by a timeout, loses no event: the next one goes on. It waits for the
        end of a plain function that the run has begun. Between two reads no tool is begun.
        """
        return Reading(self._steps)

    async def result(self) -> e.Answer:
        """Continue to the end and return the last answer.

        Raises what `Conversation.ask` raises, and RunUnfinished if the run was closed or ended
        with an error before, or in a tool of this run.

        >>> (await trip.run("Capital of France?").result()).text
        'Paris.'
        """
        self._steps.check_reader()
        try:
            async for _ in self._steps:
                pass
        finally:
            await to_its_end(self.close())
        return self.answer

    async def close(self) -> None:
        """End the run here; its turn stays in the log. A running plain function finishes first.

        A tool may close its own run, which then ends after the tool.

        >>> run = trip.run("Capital of France?", key="job-17")
        >>> await run.close()
        >>> (await trip.ask("Capital of France?", key="job-17")).text
        'Paris.'
        """
        await self._steps.aclose()

    # --- steps --------------------------------------------------------------------------

    async def _all_steps(self) -> AsyncGenerator[e.Event, None]:
        news = RunNews(self._replica, self._at.id)
        self._at._note_run(self._steps)
        try:
            async with aclosing(self._claim.followed(news)) as meanwhile:
                async for event in meanwhile:
                    yield event
            await self._look()
            await news.begin(self._run)
            held = self._claim.held_for(self._work(news), self._look, news, self._steps.wanted)
            async with aclosing(held) as events:
                async for event in events:
                    yield event
        finally:
            self._claim.release()
            news.stop()

    async def _work(self, news: RunNews) -> AsyncGenerator[e.Event | None, None]:
        """Yield the events, and None before tools: none is begun that nobody waits for."""
        while self._answer is None:
            if isinstance(next_step(await self._held(), self._run), Perform):
                yield None
            async for event in self._step(news):
                yield event
            async for event in news.collected(self._run):
                yield event

    async def _look(self) -> None:
        """Go on from what the log holds of the run, whoever wrote it."""
        await self._replica.processes.barrier(self._given.timeout_s)
        if self._given.key is not None:
            await self._at.caught_up()
        run, _, _ = await self._reached()
        self._go_on(run)

    async def _reached(self) -> tuple[KeyedRun, Step, int]:
        """Return the run in the log, its next step, and the tokens drafted of its answer."""
        held, run = await self._held(), self._run
        key = self._given.call_key(self._replica.public, 0)
        if key is not None:
            run = find_run(held, self._replica.public, key.key, key.call)
        draft = held.drafts.get(run.requests[-1]) if run.requests else None
        return run, next_step(held, run), draft.token_count if draft is not None else 0

    async def _step(self, news: RunNews) -> AsyncGenerator[e.Event, None]:
        held = await self._held()
        match next_step(held, self._run):
            case Say():
                await self._begin(held)
            case Ask(place):
                check_count(held, self._run, self._given.calls_max)
                await self._ask(held, place, self._run.attempt)
            case Await(request):
                async for event in self._follow(request, news):
                    yield event
            case AskAnew(request, place):
                await cancels.cancel(self._replica, held.id, request)
                await self._ask(held, place, self._run.attempt)
            case Perform(_, calls):
                one = await next_call(self._at, held, self._run, calls, self._given.calls_max)
                async for event in self._perform(held, one, news):
                    yield event
            case Done(request):
                await self._finish(held, request)

    async def _begin(self, held: Held) -> None:
        await self._at.check_taken()
        checked = await self._at.place()
        await check_calls_ahead(self._replica, held.id, checked)
        options = await self._options(0)  # it may wait for a host, and others write meanwhile
        async with self._at.moving():
            place = await self._at.place()
            if place != checked:
                await check_calls_ahead(self._replica, held.id, place)
            await self._write_turn(options)

    async def _write_turn(self, options: turns.RequestOptions) -> None:
        """Write the message and the first request, and go on behind them."""
        held, place = await self._held(), await self._at.place()
        bodies: list[Body] = []
        tools = tuple(tool.definition for tool in self._given.tools.values())
        if tools and offered_tools(held, place) != tools:
            bodies.append(Tools(tools))
        bodies += [
            Message(Speaker.USER, self._given.parts, options.key),
            turns.request_body(held, options),
        ]
        written = await self._replica.append_chain(
            held.id, bodies, parents=place.parents, basis=place.basis, conflict=place.conflict
        )
        self._go_on(KeyedRun(written[-2].id, (written[-1].id,)))

    async def _ask(self, held: Held, place: Place, attempt: int) -> None:
        body = turns.request_body(held, await self._options(attempt))
        entry = await self._replica.append(
            held.id, body, parents=place.parents, basis=place.basis, conflict=place.conflict
        )
        self._go_on(self._run.asked(entry.id, attempt))

    async def _follow(self, request: EntryId, news: RunNews) -> AsyncGenerator[e.Event, None]:
        """Yield the drafts of an answer until it is there, or has to be asked for anew."""
        ahead = CallsAhead(self._replica, request)
        host = AwaitedHost(self._replica, request)
        while True:
            async for event in news.collected(self._run):
                yield event
            # Another run may have asked anew while this one was not read.
            if next_step(await self._held(), self._run) != Await(request):
                return
            watch = news.watch_of(request)
            look_s = await host.look(await self._held())
            await ahead.wait(await self._held(), watch, self._given.timeout_s, look_s)

    async def _finish(self, held: Held, request: EntryId) -> None:
        answer, generation = answer_of(held, request), held.order.answer(request)
        assert answer is not None and generation is not None, "the step says so"
        reason, _ = split_finish_detail(generation.finish_detail)
        if reason == _REPEATED and self._given.key is not None:
            await self._look()  # another device was first: its turn is ours too
            return
        may_retry = self._run.attempt < self._given.retries and not has_started(held, self._run)
        if answer.finish in _AGAIN and may_retry:
            await self._ask(held, retry_place(held, request), self._run.attempt + 1)
            return
        try:
            turns.raise_if_refused(generation)
        except AnswerRefused as error:
            error.request, error.message = request, self._run.message
            if error.message in held.order.listed_by:
                with_step(error, _BESIDE)
            raise
        call = await _decided(self._given.policy, answer)
        if call is None:
            await self._replica.flush()  # so that its events were delivered
            self._answer = answer
            return
        number = tagged_sha256(POLICY_TAG, answer.entry)[:12].hex()
        part = ToolCall(call.id or number, call.name, call.arguments_json)
        place = result_place(held, request)
        await append(self._at, Message(Speaker.ASSISTANT, (part,)), place)

    def _go_on(self, run: KeyedRun) -> None:
        """Be at this state of the run, with the handle on its branch (DECISIONS D440)."""
        self._run = run
        self._claim.add(run.requests)
        if run.requests:
            self._at.went_on(run.requests[-1])

    # --- tools --------------------------------------------------------------------------

    async def _perform(
        self, held: Held, one: OpenCall, news: RunNews
    ) -> AsyncGenerator[e.Event, None]:
        """Run the tool of one call, or learn what became of it, and append the result."""
        known = self._given.tools.get(one.call.name)
        if known is None and one.started is not None:
            raise call_open(one)  # its effect may have happened
        if known is None:
            names = ", ".join(self._given.tools) or "none"
            await self._close(one, f"There is no tool {one.call.name!r}; known: {names}.", True)
            return
        if one.started is not None:
            done = await _resolved(known, one)
            if done is not None:
                await self._close(one, text_of_result(done), False)
                return
        refusal = refusal_of(known, one)
        if refusal is not None:
            await self._close(one, refusal, True)
            return
        if one.started is None and known.effect:
            start = ToolStarted(one.call.call_id, one.effect_key)
            place = Place((one.opened_by,), result_place(held, self._run.requests[-1]).basis)
            try:
                await append(self._at, Message(Speaker.TOOL, (start,)), place)
            except CallStarted as error:
                raise call_open(one) from error
            with self._claim.needed():  # the tool runs as soon as this is read
                async for event in news.collected(self._run):
                    yield event

        async def call() -> None:
            await self._close(one, *await call_tool(known, one))

        # What a thread has begun ends, and its result is kept, before a run is closed.
        if inspect.iscoroutinefunction(known.function):
            await call()
            return
        with self._steps.unbroken():
            await to_its_end(call())

    async def _close(self, one: OpenCall, text: str, is_error: bool) -> None:
        """Append the result of a call, and the next request behind the last result.

        Both in one commit: a turn of another thread that came between would be asked first. A
        call that was abandoned meanwhile, or finished on another device, gets no second result.
        """
        held = await self._held()
        if not is_still_open(held, one):
            await self._look()
            return
        place = result_place(held, self._run.requests[-1])
        result = ToolResult(one.call.call_id, (Text(text),), is_error)
        bodies: list[Body] = [Message(Speaker.TOOL, (result,))]
        if is_last_open(held, one):
            bodies.append(turns.request_body(held, await self._options(self._run.attempt)))
        _, *requests = await self._replica.append_chain(
            held.id, bodies, parents=place.parents, basis=place.basis
        )
        for request in requests:
            self._go_on(self._run.asked(request.id, self._run.attempt))

    # --- helpers ------------------------------------------------------------------------

    async def _held(self) -> Held:
        return await self._at.replica.load(self._at.id)

    async def _options(self, attempt: int) -> turns.RequestOptions:
        key = self._given.call_key(self._replica.public, attempt)
        return await self._at.options(key=key, **self._given.options)


def _unfinished(given: Given, run: KeyedRun) -> RunUnfinished:
    """Return the error of a run that has ended without an answer."""
    ended = "it was closed or left, or ended with an error"
    if given.key is not None:
        step = "Begin a new run with the same text and key: it goes on where this one ended."
        return RunUnfinished(ended, next_step=step)
    if not run.requests:
        return RunUnfinished(f"{ended}, and asked nothing", next_step=_ANEW)
    detail = f"{ended}, and without a key it can't go on; its question is in the log"
    return RunUnfinished(detail, next_step=_IN_LOG)


async def _decided(policy: Policy | None, answer: e.Answer) -> e.Call | None:
    decided = await called(policy, answer) if policy is not None else None
    if decided is None:
        return None
    if not isinstance(decided, e.Call):
        raise ArgumentInvalid(f"policy returns a Call or None, not {decided!r}")
    for part in ("id", "name", "arguments_json"):
        check_text(getattr(decided, part), f"the {part} of a policy's call")
    return decided


async def _resolved(known: Tool, one: OpenCall) -> Any:
    """Return the result of a started call, None if it did not happen. Raises CallOpen."""
    assert one.started is not None, "the caller looked"
    if known.resolve is None:
        raise call_open(one)
    return await called(known.resolve, one.started)
