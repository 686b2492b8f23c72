"""HostService Replay: one replay at a time, beside the runs (spec/07-host §10).

The rules are in model_host/replay. The engine's thread computes one chunk between two steps;
what it yields is checked in another thread. model_host/io/replay_stream.py writes to the caller,
and nothing that others need is held meanwhile.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial

import structlog

from antiphon.v1 import host_pb2 as pb
from model_host.engine_api import Engine
from model_host.errors import ReplayBusy
from model_host.grammar_source import source_for
from model_host.io.callers import Callers
from model_host.io.engine_thread import EngineThread
from model_host.io.offers import Offer
from model_host.io.prepared import prepared_run
from model_host.io.profiles import Loaded, Profiles
from model_host.io.replay_stream import ReplayStream
from model_host.io.request_handler import RequestHandler
from model_host.kv import PagePool
from model_host.page_map import last_seal
from model_host.plan import Plan, output_limit
from model_host.replay import (
    Collected,
    Computation,
    Conditions,
    RenderedCase,
    Replay,
    ReplayPages,
    Result,
    Work,
    collect,
    receipt_of,
    render_cases,
)
from model_host.runner import Run
from replica.conversation import Conversation, Finding, Receipt, ReplayMode, sign_receipt
from replica.errors import HostError
from replica.ids import ID_BYTES, EntryId, short
from replica.io import ReplayEvent, ReplayProgress, now_ms, rpc
from replica.log import public_key
from replica.refusals import ArgumentInvalid

log = structlog.get_logger()

RETRY_AFTER_S = 5.0
UNREAD_MAX = 4
"""Replays that are computed and not read yet; the oldest is dropped for another one."""
_KEY_BYTES = 32

Show = Callable[[ReplayEvent], None]


class ReplayHandler:
    """Replays conversations for their members, one at a time."""

    def __init__(
        self,
        callers: Callers,
        profiles: Profiles,
        handler: RequestHandler,
    ) -> None:
        """Compute with `profiles`; `handler` checks grammars. The host signs receipts."""
        self._callers = callers
        self._key = callers.replica.key
        self._profiles = profiles
        self._handler = handler
        self.is_busy = False
        """Whether a replay is computed."""
        self._unread: list[ReplayStream] = []  # of replays that are computed

    async def replay(self, request: pb.ReplayRequest, context: rpc.Context) -> None:
        """Replay a conversation; write progress and findings, the receipt last.

        Raises ReplayBusy. A caller that leaves, or does not read, ends its replay.
        """
        held, _ = await self._callers.member(request.conversation, context)
        if int(request.mode) not in [mode.value for mode in ReplayMode]:
            raise ArgumentInvalid("mode: REBUILD or VERIFY")
        if len(request.from_entry) not in (0, ID_BYTES):
            raise ArgumentInvalid("from_entry: 32 bytes")
        if self.is_busy:
            raise ReplayBusy(retry_after_s=RETRY_AFTER_S)
        self.is_busy = True
        first, mode = EntryId(request.from_entry), ReplayMode(request.mode)

        def stop() -> None:
            computing.cancel()

        stream = ReplayStream(stop)
        computing = asyncio.create_task(self._compute(held, mode, first, stream), name="replay")
        computing.add_done_callback(lambda _task: self._end(stream))
        try:
            await stream.write_all(context)
        finally:
            stop()  # has no effect on one that has ended
            await asyncio.gather(computing, return_exceptions=True)
            self._unread = [one for one in self._unread if one is not stream]
        await computing

    def _end(self, stream: ReplayStream) -> None:
        """Make room for the next replay: this one is not computed any further."""
        self.is_busy = False
        stream.end()
        self._unread = [one for one in (*self._unread, stream) if not one.is_dropped]
        if len(self._unread) > UNREAD_MAX:
            self._unread[0].drop()

    async def _compute(
        self, held: Conversation, mode: ReplayMode, first: EntryId, stream: ReplayStream
    ) -> None:
        # One profile judges all answers: those of others are UNDECIDED, or differ by weights.
        offer = self._profiles.offers.of_seal(last_seal(held))
        async with self._profiles.using(offer) as loaded:
            stream.put(await self._replay(held, mode, first, stream.put, loaded))

    async def _replay(
        self,
        held: Conversation,
        mode: ReplayMode,
        first: EntryId,
        show: Show,
        loaded: Loaded,
    ) -> Receipt:
        """Show the findings, and return the receipt."""
        collected = collect(held, first or None)
        loop = asyncio.get_running_loop()
        replay = await asyncio.to_thread(self._prepare, loop, collected, mode, loaded)
        findings: dict[EntryId, Finding] = {}

        def note(found: Iterable[Finding]) -> None:
            for finding in found:
                findings[finding.answer] = finding
                show(finding)

        note(replay.start())
        async with _pages_of(loaded.thread) as pages:
            computation = Computation(replay, pages, held.id)
            show(ReplayProgress(0, computation.total_tokens))
            while computation.work is not None:
                work = computation.work
                result = await loaded.thread.between_steps(partial(_perform, work))
                note(await asyncio.to_thread(computation.receive, result))
                show(ReplayProgress(computation.done_tokens, computation.total_tokens))
        receipt = receipt_of(
            collected,
            findings,
            host=public_key(self._key),
            mode=mode,
            profile=loaded.offer.profile.digest,
            numerics_class=loaded.numerics_class,
            from_entry=first,
            time_ms=now_ms(),
        )
        log.info(
            "replayed", conversation=short(held.id), mode=mode.name, answers=len(findings),
            outcome=receipt.outcome, tokens=receipt.tokens,
        )  # fmt: skip
        return sign_receipt(receipt, self._key)

    def _prepare(
        self,
        loop: asyncio.AbstractEventLoop,
        collected: Collected,
        mode: ReplayMode,
        loaded: Loaded,
    ) -> Replay:
        """Render all contexts, and prepare the checks, in a thread; grammars pass `loop`."""
        offer, engine = loaded.offer, loaded.thread.engine
        here = Conditions(
            offer.profile.digest,
            loaded.numerics_class,
            offer.profile.render_recipe_digest,
            engine.bitwise,
            engine.config.vocab,
            engine.config.context_tokens,
            offer.profile.grammar_engine,
        )
        rendered = render_cases(collected, offer.renderer, offer.profile.digest)
        return Replay(mode, rendered, here, partial(self._run_of, loop, collected, offer))

    def _run_of(
        self,
        loop: asyncio.AbstractEventLoop,
        collected: Collected,
        offer: Offer,
        rendered: RenderedCase,
    ) -> Run:
        """Return the run of an answer, as the live one begins. Raises a refusal."""
        case, context, profile = rendered.case, rendered.context, offer.profile
        assert case.recorded is not None, "an answer whose body is here is checked"
        limit = output_limit(case.request, len(context.ids), profile)
        tools = context.place.tools or ()
        grammar = source_for(case.request, tools, offer.renderer.tools.format)
        planned = Plan(
            collected.conversation, case.request_id, case.request, case.seal, context, limit,
            grammar,
        )  # fmt: skip
        asyncio.run_coroutine_threadsafe(self._handler.check_grammar(planned), loop).result()
        prepared = prepared_run(planned, offer)
        return Run(
            planned, case.seal_id, case.recorded.run, prepared.state, prepared.text,
            profile.context_tokens_max, prepared.grammar,
        )  # fmt: skip


@asynccontextmanager
async def _pages_of(thread: EngineThread) -> AsyncIterator[ReplayPages]:
    """Yield pages for one replay; free them at the end, also where the caller has left."""
    key = os.urandom(_KEY_BYTES)
    pages = await thread.between_steps(lambda engine, pool, _: ReplayPages(engine, pool, key))
    try:
        yield pages
    finally:
        with suppress(HostError):  # an engine that has stopped needs no memory
            await asyncio.shield(thread.between_steps(lambda *_: pages.free()))


def _perform(work: Work, _engine: Engine, _pool: PagePool, rows: int) -> Result:
    """Perform work of a replay, whose pages know engine and pool."""
    return work(rows)
