"""The answer to one request in the log: a refusal, or a seal and a generation (spec/07-host §4).

model_host/io/run_driver.py computes the tokens between the two;
model_host/schedule.py decides which request is next.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from model_host.calls import CallingText, Visible
from model_host.contexts import Contexts
from model_host.engine import Tokenizer
from model_host.io.engine_thread import EngineThread
from model_host.io.journal import Journals
from model_host.io.namespaces import Namespaces
from model_host.io.run_driver import RunDriver
from model_host.io.run_table import RunTable
from model_host.journal_records import JournalHead
from model_host.owner import owner_of
from model_host.plan import (
    Gathered,
    Plan,
    gather,
    gather_branch,
    plan,
    render_branch,
    standing,
)
from model_host.profile import Profile
from model_host.refusals import ObligationsOpen, StopInvalid, finish_detail
from model_host.render import Context, Renderer
from model_host.runner import Run
from model_host.sampler_state import Choice, SamplerState
from model_host.schedule import Refuse
from model_host.stop import unfinished
from model_host.text import VisibleText
from replica.conversation import Conversation, Sealable, extend_digest, start_digest
from replica.errors import AntiphonError, HostError
from replica.ids import Digest, EntryId, short
from replica.io import Replica
from replica.log import Conflict, FinishReason, Request, Sampling, Usage
from replica.order import SealNode

log = structlog.get_logger()

_NOT_THE_SAME = "the host can't go on bit-identically. Ask again: the answer goes on from here."
_LOGGED = ("prompt_tokens", "cached_tokens", "restored_tokens", "prefilled_tokens", "output_tokens")
_NO_LIMIT = 2**31
_Input = TypeVar("_Input")
_Output = TypeVar("_Output")


@dataclass(frozen=True, slots=True)
class Offer:
    """The model, profile and limits this host runs requests with."""

    profile: Profile
    renderer: Renderer
    tokenizer: Tokenizer
    numerics_class: Digest
    stop_ids: frozenset[int]


@dataclass(slots=True)
class AnswerCounters:
    """Counts of answered requests since start."""

    generations: int = 0
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan that can be carried out: all checks that may refuse it are behind it."""

    plan: Plan
    state: SamplerState
    text: Visible


class RequestHandler:
    """Answers requests in the order of model_host/schedule.py.

    Contexts are rendered in a thread of their own: a long one takes longer than readers
    and the hub should wait.
    """

    def __init__(
        self,
        replica: Replica,
        key: Ed25519PrivateKey,
        thread: EngineThread,
        namespaces: Namespaces,
        journals: Journals,
        offer: Offer,
    ) -> None:
        """Append through `replica`, compute in `thread`, sign drafts with `key`."""
        self._replica = replica
        self._thread = thread
        self._namespaces = namespaces
        self._journals = journals
        self._offer = offer
        self._contexts = Contexts()
        self.rendering = ThreadPoolExecutor(1, thread_name_prefix="rendering")
        self.counters = AnswerCounters()
        self.runs = RunTable(replica, key)

    async def close(self) -> None:
        """Finish the rendering in progress, then end its thread."""
        await asyncio.to_thread(self.rendering.shutdown)

    # --- the three ways to an answer ----------------------------------------------

    async def begin(self, held: Conversation, ready: Sealable) -> bool:
        """Seal the next request and generate, or refuse it if it can't be planned.

        Returns False for a queued request that waits for results of tools. Does nothing if
        the turn changed while the context was rendered: a CANCEL may have come, or a
        revocation. The schedule then decides again.
        """
        request_id, before = ready.request, standing(held, ready.request)
        refusal: HostError | None = None
        try:
            # All checks that may refuse come before the seal: a sealed request must be answered.
            prepared = await self._prepare(held, ready)
        except HostError as error:
            refusal = error
        if standing(held, request_id) != before:
            log.info("the turn changed", request=short(request_id))
            return True
        if isinstance(refusal, ObligationsOpen) and _queues(held, request_id):
            log.info("waiting for results", request=short(request_id), detail=refusal.detail)
            return False
        if refusal is not None:
            await self.refuse(held, _refusal(held, request_id, refusal))
            return True
        seal = prepared.plan.seal
        entry = await self._replica.append(
            held.id, seal, parents=(request_id,), basis=seal.prev_seal
        )
        if entry.id not in held.order.nodes:
            raise HostError("its seal does not count")
        self._contexts.keep(entry.id, prepared.plan.context)
        run = self._run(prepared, entry.id, _new_run_number())
        await self._generate(held, run, None)
        return True

    async def resume(self, held: Conversation, request_id: EntryId) -> None:
        """Resume a run after a crash with the same tokens, or close it if that is impossible."""
        node = held.order.nodes[held.order.seal_of[request_id]]
        head, journaled = self._journaled(held, request_id, node.id)
        try:
            prepared = await self._prepare(held, _sealed(node, request_id))
        except HostError as error:
            # Sealed with another model, a longer context or other rules than the present ones.
            await self._interrupt(held, request_id, finish_detail(error))
            return
        same_text = prepared.plan.seal.render_digest == node.seal.render_digest
        if not same_text or head != self._head(request_id, node.id, head.run):
            await self._interrupt(held, request_id, _NOT_THE_SAME)
            return
        log.info("resuming", request=short(request_id), tokens=len(journaled or ()))
        self._contexts.keep(node.id, prepared.plan.context)
        run = self._run(prepared, node.id, head.run)
        await self._generate(held, run, journaled)

    async def close_request(
        self, held: Conversation, request_id: EntryId, failure: Exception
    ) -> None:
        """Close a request whose answer failed with an error that would recur."""
        if held.order.generation_of(request_id) is not None:
            return
        known = failure if isinstance(failure, AntiphonError) else HostError("The host failed.")
        if request_id in held.order.seal_of:
            await self._interrupt(held, request_id, finish_detail(known))
        else:
            await self.refuse(held, _refusal(held, request_id, known))

    async def refuse(self, held: Conversation, refusal: Refuse) -> None:
        """Append the refusal of a request."""
        request_id = refusal.request
        basis = held.log.entries[request_id].header.basis
        await self._replica.append(held.id, refusal.body, parents=(request_id,), basis=basis)
        self.counters.refusals += 1
        log.info("refused", request=short(request_id), detail=refusal.detail)

    def forget_answered(self, held: Conversation) -> None:
        """Delete journals of requests that are answered. Raises StoreError."""
        for request_id in self._journals.requests():
            if held.order.generation_of(request_id) is not None:
                self._journals.discard(request_id)

    # --- plans and runs -----------------------------------------------------------

    async def _prepare(self, held: Conversation, ready: Sealable) -> Prepared:
        """Plan a request in the rendering thread. Raises GenerationRefused."""
        return await self._in_thread(self._plan, gather(held, ready, self._contexts))

    async def _in_thread(self, work: Callable[[_Input], _Output], value: _Input) -> _Output:
        return await asyncio.get_running_loop().run_in_executor(self.rendering, work, value)

    def _plan(self, gathered: Gathered) -> Prepared:
        offer = self._offer
        planned = plan(gathered, profile=offer.profile, renderer=offer.renderer)
        shows = self._text(planned, planned.request.stop)
        state = SamplerState(
            planned.request,
            vocabulary=offer.tokenizer.token_count,
            context=planned.prompt,
            output_index=planned.draw_offset,
            end_ids=offer.stop_ids,
        )
        return Prepared(planned, state, shows)

    def _text(self, planned: Plan, stops: Sequence[str]) -> Visible:
        """Return the visible text of a run. Raises StopInvalid."""
        tokenizer, renderer = self._offer.tokenizer, self._offer.renderer
        first_stop = planned.request.output_tokens_min
        text = VisibleText(tokenizer, stops, planned.continued, first_stop)
        if not planned.context.place.tools:
            return text
        continued = tokenizer.decode_bytes(planned.continued)
        before = continued[: len(continued) - len(unfinished(continued))].decode(errors="replace")
        return CallingText(text, renderer.tools.format, before)

    def _run(self, prepared: Prepared, seal_id: EntryId, number: int) -> Run:
        limit = self._offer.profile.context_tokens_max
        return Run(prepared.plan, seal_id, number, prepared.state, prepared.text, limit)

    def _head(self, request_id: EntryId, seal_id: EntryId, number: int) -> JournalHead:
        offer = self._offer
        return JournalHead(request_id, seal_id, number, offer.profile.digest, offer.numerics_class)

    def _journaled(
        self, held: Conversation, request_id: EntryId, seal_id: EntryId
    ) -> tuple[JournalHead, list[Choice] | None]:
        """Return head and tokens of a seal's journal; a new head and None if there is none."""
        found = self._journals.read(request_id, _request(held, request_id).logprobs)
        if found is None or found[0].seal != seal_id:
            return self._head(request_id, seal_id, _new_run_number()), None
        return found

    # --- generations --------------------------------------------------------------

    async def _generate(self, held: Conversation, run: Run, journaled: list[Choice] | None) -> None:
        head = self._head(run.plan.request_id, run.seal_id, run.run)
        if journaled is None:
            journal = self._journals.create(head)
        else:
            journal = self._journals.resume(head, journaled, run.plan.request.logprobs)
        driver = RunDriver(self._thread, held, run, journal, self.runs)
        spaces = self._namespaces
        with closing(journal), self.runs.holding(driver):
            await driver.finish(
                journaled or (),
                owner=owner_of(held),
                domain=spaces.pages(held),
                namespace=spaces.stored(held),
            )
            generation_id = await self._append(held, run, driver.usage, driver.frames.digest, head)
            if driver.usage.prompt_tokens:  # else nothing was computed
                ids = [*run.plan.prompt, *run.token_ids]
                await self._thread.checkpoint(
                    held.id, spaces.stored(held), run.seal_id, generation_id, ids
                )

    async def _interrupt(self, held: Conversation, request_id: EntryId, problem: str) -> None:
        """Close a sealed request without computing; the text shown is kept."""
        node = held.order.nodes[held.order.seal_of[request_id]]
        head, journaled = self._journaled(held, request_id, node.id)
        run = await self._shown_run(held, request_id, node, head.run)
        for choice in journaled or ():
            run.add_token(choice.token_id, choice.logprobs)
        if run.finished is None:
            run.end(FinishReason.INTERRUPTED, problem)
        ids = tuple(choice.token_id for choice in journaled or ())
        digest = extend_digest(start_digest(request_id, head.run), ids)
        await self._append(held, run, Usage(), digest, head)

    async def _shown_run(
        self, held: Conversation, request_id: EntryId, node: SealNode, number: int
    ) -> Run:
        """Return a run that repeats recorded tokens only, with the text shown of them."""
        request = _request(held, request_id)
        offer = self._offer
        context = await self._context_as_sealed(held, node)
        limit = request.output_tokens_max or _NO_LIMIT
        planned = Plan(held.id, request_id, request, node.seal, context, limit)
        shows: Visible
        try:
            shows = self._text(planned, request.stop)
        except StopInvalid:
            shows = self._text(planned, ())
        # Without the prompt the ids are another model's, and have no text here.
        shows = shows if context.ids else _NoText()
        # Nothing is chosen, and the present rules may refuse the request's own sampling.
        state = SamplerState(
            Request(request.host, Sampling()),
            vocabulary=0,
            end_ids=offer.stop_ids.union(request.stop_tokens),
        )
        return Run(planned, node.id, number, state, shows, _NO_LIMIT)

    async def _context_as_sealed(self, held: Conversation, node: SealNode) -> Context:
        """Return the context of a seal; the empty one if it renders differently here."""
        renderer = self._offer.renderer
        try:
            branch = gather_branch(held, node, self._contexts)
            rendered = await self._in_thread(partial(render_branch, renderer=renderer), branch)
        except HostError:
            return renderer.empty
        same = rendered.context.digest == node.seal.render_digest
        return rendered.context if same else renderer.empty

    async def _append(
        self,
        held: Conversation,
        run: Run,
        usage: Usage,
        draft_digest: Digest,
        head: JournalHead,
    ) -> EntryId:
        """Append the generation of a finished run, then drop the journal; return its id."""
        profile = self._offer.profile
        body = run.generation(
            usage,
            draft_digest,
            profile=profile if head.profile == profile.digest else None,
            numerics_class=head.numerics_class,
        )
        entry = await self._replica.append(held.id, body, parents=(run.seal_id,), basis=run.seal_id)
        self._journals.discard(run.plan.request_id)
        self.counters.generations += 1
        log.info(
            "answered",
            request=short(run.plan.request_id),
            finish=FinishReason(body.finish_reason).name.lower(),
            **{name: getattr(body.usage, name) for name in _LOGGED},
        )
        return entry.id


class _NoText:
    """The visible text of another model's tokens: none."""

    stopped_by = None
    calls = ()
    hidden_bytes = 0

    def push(self, _token_id: int) -> bytes:
        """Return no bytes."""
        return b""

    def finish(self, *, can_continue: bool) -> bytes:  # noqa: ARG002
        """Return no bytes."""
        return b""


def _request(held: Conversation, request_id: EntryId) -> Request:
    request = held.order.request(request_id)
    assert request is not None, "only requests are answered"
    return request


def _queues(held: Conversation, request_id: EntryId) -> bool:
    return held.log.entries[request_id].header.conflict == Conflict.QUEUE


def _refusal(held: Conversation, request_id: EntryId, error: AntiphonError) -> Refuse:
    return Refuse(held.id, request_id, FinishReason.REFUSED, finish_detail(error))


def _new_run_number() -> int:
    return int.from_bytes(os.urandom(8), "little") or 1


def _sealed(node: SealNode, request_id: EntryId) -> Sealable:
    """Return a seal's contents in the form they had before sealing."""
    seal = node.seal
    return Sealable(
        request_id, node.parent, seal.entries, seal.membership_heads, seal.context_digest
    )
