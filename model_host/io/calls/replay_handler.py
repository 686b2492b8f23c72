"""HostService Replay: one replay at a time, beside the runs (spec/07-host §10).

The rules are in model_host/replay. The engine's thread computes one chunk between two steps;
what it yields is checked in another thread. replay_stream.py writes to the caller, and nothing
that others need is held meanwhile.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

import structlog

from antiphon.v1 import host_pb2 as pb
from model_host.engine_api import Engine
from model_host.errors import ProfileTooLarge, ReplayBusy
from model_host.generation import Plan, Run, output_limit
from model_host.grammar import SharedGrammars, source_for
from model_host.io.answers import RequestHandler
from model_host.io.calls.callers import Callers, check_member
from model_host.io.calls.replay_stream import ReplayStream
from model_host.io.contexts import prepared_run
from model_host.io.profiles import Loaded, Offer, Profiles
from model_host.kv import PagePool
from model_host.refusals import ProfileUnavailable
from model_host.replay import (
    Collected,
    Computation,
    Conditions,
    Judges,
    Part,
    RenderedCase,
    Replay,
    ReplayPages,
    Result,
    Work,
    collect,
    parts_of,
    receipt_of,
    unjudged,
)
from replica.conversation import Conversation, Finding, Judge, Outcome, ReplayMode, sign_receipt
from replica.errors import HostError
from replica.ids import ID_BYTES, Digest, EntryId, short
from replica.io import ReplayEvent, ReplayProgress, now_ms, rpc, to_the_end
from replica.limits import REPLAYS_UNREAD_MAX
from replica.log import public_key
from replica.refusals import ArgumentInvalid

log = structlog.get_logger()

RETRY_AFTER_S = 5.0
_KEY_BYTES = 32

Show = Callable[[ReplayEvent], None]
P = ParamSpec("P")
R = TypeVar("R")


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
        self._classes: dict[Digest, Digest] = {}  # of the profiles whose class was asked for
        self._unread: list[ReplayStream] = []  # of replays that are computed

    async def replay(self, request: pb.ReplayRequest, context: rpc.Context) -> None:
        """Replay a conversation; write progress and findings, the receipt last.

        Raises ReplayBusy. A caller that leaves, or does not read, ends its replay.
        """
        held, peer = await self._callers.member(request.conversation, context)
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
            await stream.write_all(context, partial(check_member, held, peer))
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
        if len(self._unread) > REPLAYS_UNREAD_MAX:
            self._unread[0].drop()

    async def _compute(
        self, held: Conversation, mode: ReplayMode, first: EntryId, stream: ReplayStream
    ) -> None:
        """Show the findings, and the receipt last."""
        collected = collect(held, first or None)
        parts = await self._parts(collected)
        made = _Made(stream.put)
        failed: list[tuple[Part, HostError]] = []
        # Those that are loaded come first, since another one may take their place.
        for part in sorted(parts, key=lambda part: self._loaded(part) is None):
            try:
                await self._judge(collected, part, mode, made)
            except (ProfileUnavailable, ProfileTooLarge) as error:
                failed.append((part, error))
        if not made.numerics_classes:
            raise failed[0][1]
        for part, why in failed:
            left = [one for one in part.rendered if one.case.entry not in made.findings]
            made.note([unjudged(one, why) for one in left])
        judges = (part.profile for part in parts if part.profile in made.numerics_classes)
        judge, *further = [Judge(each, made.numerics_classes[each]) for each in judges]
        receipt = receipt_of(
            collected,
            made.findings,
            host=public_key(self._key),
            mode=mode,
            judge=judge,
            further=further,
            from_entry=first,
            time_ms=now_ms(),
        )
        log.info(
            "replayed", conversation=short(held.id), mode=mode.name, answers=len(made.findings),
            outcome=Outcome(receipt.outcome).name, tokens=receipt.tokens,
        )  # fmt: skip
        stream.put(sign_receipt(receipt, self._key))

    async def _parts(self, collected: Collected) -> list[Part]:
        """Return the parts that profiles judge. Some are loaded, if their class decides."""
        offers = self._profiles.offers
        renderers = {offer.profile.digest: offer.renderer for offer in offers.all}
        judges = await _in_thread(Judges, collected, renderers)
        while (wanted := judges.wanted) is not None:
            judges.note(wanted, await self._numerics_class(wanted))
        return await _in_thread(parts_of, collected, judges.of, renderers)

    async def _numerics_class(self, profile: Digest) -> Digest | None:
        """Return the numerics class of a profile, which is loaded once for it; None if it can't."""
        offer = self._profiles.offers.get(profile)
        assert offer is not None, "it is a profile of this host"
        if profile not in self._classes:
            try:
                async with self._profiles.using(offer) as loaded:
                    self._classes[profile] = loaded.numerics_class
            except (ProfileUnavailable, ProfileTooLarge):  # its own answers will say so
                return None
        return self._classes[profile]

    async def _judge(
        self, collected: Collected, part: Part, mode: ReplayMode, made: "_Made"
    ) -> None:
        """Judge the answers of one profile, which is loaded for that.

        Raises ProfileUnavailable or ProfileTooLarge, which may come behind some findings.
        """
        offer = self._profiles.offers.get(part.profile)
        assert offer is not None, "a part is judged by a profile of this host"
        async with self._profiles.using(offer) as loaded:
            made.numerics_classes[part.profile] = loaded.numerics_class
            loop = asyncio.get_running_loop()
            replay = await _in_thread(self._prepare, loop, collected, part, mode, loaded)
            made.note(replay.start())
            pages = await loaded.thread.between_steps(_new_pages)
            computation = Computation(replay, pages, collected.conversation)
            made.begin(computation)
            await self._go_on(computation, made, loaded)
        while computation.work is not None:
            # Answers of another profile came first. What was computed is computed again.
            async with self._profiles.using(offer) as loaded:
                await loaded.thread.between_steps(lambda engine, pool, _: pages.move(engine, pool))
                await self._go_on(computation, made, loaded)

    async def _go_on(self, computation: Computation, made: "_Made", loaded: Loaded) -> None:
        """Compute until the end, or until another profile needs the memory of this one."""
        try:
            while computation.work is not None and not self._profiles.awaits_other(loaded.offer):
                work = computation.work
                result = await loaded.thread.between_steps(partial(_perform, work))
                made.note(await _in_thread(computation.receive, result))
                made.show_progress(computation)
        finally:
            with suppress(HostError):  # an engine that has stopped needs no memory
                free = loaded.thread.between_steps(lambda *_: computation.pages.free())
                await asyncio.shield(free)

    def _loaded(self, part: Part) -> Loaded | None:
        offer = self._profiles.offers.get(part.profile)
        return self._profiles.loaded(offer) if offer is not None else None

    def _prepare(
        self,
        loop: asyncio.AbstractEventLoop,
        collected: Collected,
        part: Part,
        mode: ReplayMode,
        loaded: Loaded,
    ) -> Replay:
        """Prepare the checks, in a thread; grammars pass `loop`."""
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
        grammars = SharedGrammars(offer.grammars)
        run_of = partial(self._run_of, loop, collected, offer, grammars)
        return Replay(mode, part.rendered, here, run_of)

    def _run_of(
        self,
        loop: asyncio.AbstractEventLoop,
        collected: Collected,
        offer: Offer,
        grammars: SharedGrammars,
        rendered: RenderedCase,
    ) -> Run:
        """Return the run of an answer, as the live one begins. Raises a refusal."""
        case, context, profile = rendered.case, rendered.context, offer.profile
        assert case.recorded is not None, "an answer whose body is here is checked"
        limit = output_limit(case.request, len(context.ids), profile)
        tools = context.place.tools or ()
        grammar = source_for(case.request, tools, offer.renderer.turns.format)
        planned = Plan(
            collected.conversation, case.request_id, case.request, case.seal, context, limit,
            grammar,
        )  # fmt: skip
        if grammar is not None:
            grammars.check_room(grammar)
        # One at a time for the only replay: it waits for no grammars of its own.
        checked = self._handler.check_grammar(planned, collected.conversation)
        asyncio.run_coroutine_threadsafe(checked, loop).result()
        prepared = prepared_run(planned, offer, grammars)
        return Run(
            planned, case.seal_id, case.recorded.run, prepared.state, prepared.text,
            profile.context_tokens_max, prepared.grammar,
        )  # fmt: skip


class _Made:
    """What a replay has found so far, over the parts that its profiles judge."""

    def __init__(self, show: Show) -> None:
        """Pass findings and progress to `show`."""
        self._show = show
        self.findings: dict[EntryId, Finding] = {}
        self.numerics_classes: dict[Digest, Digest] = {}
        """By profile, of those that judged."""
        self._done_before = self._total = 0

    def note(self, found: Iterable[Finding]) -> None:
        """Keep findings, and show them."""
        for finding in found:
            self.findings[finding.answer] = finding
            self._show(finding)

    def begin(self, computation: Computation) -> None:
        """Count the tokens of the next part."""
        self._done_before = self._total
        self._total += computation.total_tokens
        self.show_progress(computation)

    def show_progress(self, computation: Computation) -> None:
        """Show how far the computation is, behind that of the parts before it."""
        self._show(ReplayProgress(self._done_before + computation.done_tokens, self._total))


async def _in_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function in a thread, and wait for its end also where the caller has left.

    The next replay would begin beside it otherwise, with as much memory again (HOST-72).
    """
    return await to_the_end(asyncio.to_thread(work, *args, **kwargs))


def _new_pages(engine: Engine, pool: PagePool, _rows: int) -> ReplayPages:
    """Return pages for one replay, whose key nobody else has."""
    return ReplayPages(engine, pool, os.urandom(_KEY_BYTES))


def _perform(work: Work, _engine: Engine, _pool: PagePool, rows: int) -> Result:
    """Perform work of a replay, whose pages know engine and pool."""
    return work(rows)
