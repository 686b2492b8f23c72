"""The answer to one request in the log: a refusal, or a seal and a generation (spec/07-host §4).

model_host/io/run_driver.py computes the tokens between the two;
model_host/schedule.py decides which request is next.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from model_host.calls import CallingText, Visible
from model_host.grammar import Grammar
from model_host.grammar_source import may_call
from model_host.io.grammar_checker import GrammarChecker
from model_host.io.hub_checkpoints import HubCheckpoints
from model_host.io.journal import Journals
from model_host.io.offers import Offer
from model_host.io.profiles import Loaded, Profiles
from model_host.io.run_driver import RunDriver
from model_host.io.run_table import RunTable
from model_host.journal_records import JournalHead
from model_host.measures import AnswerCounters
from model_host.owner import owner_of
from model_host.plan import (
    Plan,
    gather,
    gather_branch,
    plan,
    render_branch,
    standing,
)
from model_host.refusals import ObligationsOpen, StopInvalid, finish_detail
from model_host.render import Context
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
class Prepared:
    """A plan that can be carried out: all checks that may refuse it are behind it."""

    offer: Offer
    plan: Plan
    state: SamplerState
    text: Visible
    grammar: Grammar | None


class RequestHandler:
    """Answers requests in the order of model_host/schedule.py.

    Contexts are rendered in a thread of their own: a long one takes longer than readers
    and the hub should wait.
    """

    def __init__(
        self,
        replica: Replica,
        key: Ed25519PrivateKey,
        profiles: Profiles,
        journals: Journals,
        hub_tier: HubCheckpoints,
    ) -> None:
        """Append through `replica`, compute with `profiles`, sign drafts with `key`."""
        self._replica = replica
        self._profiles = profiles
        self._journals = journals
        self._hub_tier = hub_tier
        self._checker = GrammarChecker()
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
        async with AsyncExitStack() as stack:
            return await self._begin(held, ready, stack)

    async def _begin(self, held: Conversation, ready: Sealable, stack: AsyncExitStack) -> bool:
        """Begin an answer; its profile stays loaded until the end of `stack`."""
        request_id, before = ready.request, standing(held, ready.request)
        refusal: HostError | None = None
        try:
            # All checks that may refuse come before the seal: a sealed request must be answered.
            offer = self._profiles.offers.choose(_request(held, request_id).profile)
            prepared = await self._prepare(held, ready, offer)
            loaded = await stack.enter_async_context(self._profiles.using(offer))
        except HostError as error:
            refusal = error
        if standing(held, request_id) != before:
            log.info("the turn changed", conversation=short(held.id), request=short(request_id))
            return True
        if isinstance(refusal, ObligationsOpen) and _queues(held, request_id):
            log.info(
                "waiting for results",
                conversation=short(held.id),
                request=short(request_id),
                detail=refusal.detail,
            )
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
        offer.contexts.keep(entry.id, prepared.plan.context)
        run = _run(prepared, entry.id, _new_run_number())
        await self._generate(held, run, None, loaded)
        return True

    async def resume(self, held: Conversation, request_id: EntryId) -> None:
        """Resume a run after a crash with the same tokens, or close it if that is impossible."""
        node = held.order.nodes[held.order.seal_of[request_id]]
        async with AsyncExitStack() as stack:
            try:
                # The seal's profile: the default of a host may change between two starts.
                offer = self._profiles.offers.choose(node.seal.profile)
                prepared = await self._prepare(held, _sealed(node, request_id), offer)
                loaded = await stack.enter_async_context(self._profiles.using(offer))
            except HostError as error:
                # Sealed with another model, a longer context or other rules than the present ones.
                await self._interrupt(held, request_id, finish_detail(error))
                return
            await self._resume(held, node, prepared, loaded)

    async def _resume(
        self, held: Conversation, node: SealNode, prepared: Prepared, loaded: Loaded
    ) -> None:
        request_id = prepared.plan.request_id
        journaled = self._journaled(held, request_id, node.id)
        number = journaled[0].run if journaled is not None else _new_run_number()
        run = _run(prepared, node.id, number)
        same_text = prepared.plan.seal.render_digest == node.seal.render_digest
        same_host = journaled is None or journaled[0] == _head(run, loaded)
        if not (same_text and same_host):
            await self._interrupt(held, request_id, _NOT_THE_SAME)
            return
        choices = journaled[1] if journaled is not None else None
        log.info(
            "resuming",
            conversation=short(held.id),
            request=short(request_id),
            run=number,
            tokens=len(choices or ()),
        )
        loaded.offer.contexts.keep(node.id, prepared.plan.context)
        await self._generate(held, run, choices, loaded)

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
        self.counters.note_refusal(refusal.finish, refusal.detail)
        log.info(
            "refused",
            conversation=short(held.id),
            request=short(request_id),
            detail=refusal.detail,
        )

    def forget_answered(self, held: Conversation) -> None:
        """Delete journals of requests that are answered. Raises StoreError."""
        for request_id in self._journals.requests():
            if held.order.generation_of(request_id) is not None:
                self._journals.discard(request_id)

    # --- plans and runs -----------------------------------------------------------

    async def _prepare(self, held: Conversation, ready: Sealable, offer: Offer) -> Prepared:
        """Plan a request in the rendering thread. Raises GenerationRefused."""
        make = partial(plan, profile=offer.profile, renderer=offer.renderer)
        planned = await self._in_thread(make, gather(held, ready, offer.contexts))
        await self.check_grammar(planned)
        return await self._in_thread(partial(prepared_run, offer=offer), planned)

    async def check_grammar(self, planned: Plan) -> None:
        """Raise GrammarInvalid for a plan whose grammar can't be compiled within limits."""
        if planned.grammar is not None:
            await self._checker.check(planned.grammar)

    async def _in_thread(self, work: Callable[[_Input], _Output], value: _Input) -> _Output:
        return await asyncio.get_running_loop().run_in_executor(self.rendering, work, value)

    def _journaled(
        self, held: Conversation, request_id: EntryId, seal_id: EntryId
    ) -> tuple[JournalHead, list[Choice]] | None:
        """Return head and tokens of a seal's journal, None if there is none."""
        found = self._journals.read(request_id, _request(held, request_id).logprobs)
        return found if found is not None and found[0].seal == seal_id else None

    # --- generations --------------------------------------------------------------

    async def _generate(
        self, held: Conversation, run: Run, journaled: list[Choice] | None, loaded: Loaded
    ) -> None:
        head = _head(run, loaded)
        if journaled is None:
            journal = self._journals.create(head)
        else:
            journal = self._journals.resume(head, journaled, run.plan.request.logprobs)
        driver = RunDriver(loaded.thread, held, run, journal, self.runs)
        spaces = loaded.namespaces
        with closing(journal), self.runs.holding(driver):
            await self._hub_tier.fetch(
                held, loaded, run.plan.prompt,
                lambda: not held.order.is_cancelled(run.plan.request_id),
            )  # fmt: skip
            await driver.finish(
                journaled or (),
                owner=owner_of(held),
                domain=spaces.pages(held),
                namespace=spaces.stored(held),
            )
            generation_id = await self._append(held, run, driver.usage, driver.frames.digest, head)
            if driver.usage.prompt_tokens:  # else nothing was computed
                ids = [*run.plan.prompt, *run.token_ids]
                loaded.thread.checkpoint(
                    held.id, spaces.stored(held), run.seal_id, generation_id, ids
                )
                self._hub_tier.note(held, loaded.offer)

    async def _interrupt(self, held: Conversation, request_id: EntryId, problem: str) -> None:
        """Close a sealed request without computing; the text shown is kept."""
        node = held.order.nodes[held.order.seal_of[request_id]]
        head, journaled = self._journaled(held, request_id, node.id) or (None, [])
        number = head.run if head is not None else _new_run_number()
        run = await self._shown_run(held, request_id, node, number)
        for choice in journaled:
            run.add_token(choice.token_id, choice.logprobs)
        if run.finished is None:
            run.end(FinishReason.INTERRUPTED, problem)
        ids = tuple(choice.token_id for choice in journaled)
        digest = extend_digest(start_digest(request_id, number), ids)
        await self._append(held, run, Usage(), digest, head)

    async def _shown_run(
        self, held: Conversation, request_id: EntryId, node: SealNode, number: int
    ) -> Run:
        """Return a run that repeats recorded tokens only, with the text shown of them."""
        request = _request(held, request_id)
        offers = self._profiles.offers
        offer = offers.get(node.seal.profile) or offers.default
        context = await self._context_as_sealed(held, node, offer)
        limit = request.output_tokens_max or _NO_LIMIT
        planned = Plan(held.id, request_id, request, node.seal, context, limit)
        shows: Visible
        try:
            shows = _text(planned, request.stop, offer)
        except StopInvalid:
            shows = _text(planned, (), offer)
        # Without the prompt the ids are another model's, and have no text here.
        shows = shows if context.ids else _NoText()
        # Nothing is chosen, and the present rules may refuse the request's own sampling.
        state = SamplerState(
            Request(request.host, Sampling()),
            vocabulary=0,
            end_ids=offer.stop_ids.union(request.stop_tokens),
        )
        return Run(planned, node.id, number, state, shows, _NO_LIMIT)

    async def _context_as_sealed(self, held: Conversation, node: SealNode, offer: Offer) -> Context:
        """Return the context of a seal; the empty one if it renders differently here."""
        renderer = offer.renderer
        try:
            branch = gather_branch(held, node, offer.contexts)
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
        head: JournalHead | None,
    ) -> EntryId:
        """Append the generation of a finished run, then drop the journal; return its id.

        Without a head nothing was computed.
        """
        offer = self._profiles.offers.get(head.profile) if head is not None else None
        body = run.generation(
            usage,
            draft_digest,
            profile=offer.profile if offer is not None else None,
            numerics_class=head.numerics_class if head is not None else None,
        )
        entry = await self._replica.append(held.id, body, parents=(run.seal_id,), basis=run.seal_id)
        self._journals.discard(run.plan.request_id)
        self.counters.note_generation(FinishReason(body.finish_reason), body.usage)
        log.info(
            "answered",
            conversation=short(held.id),
            run=run.run,
            request=short(run.plan.request_id),
            finish=FinishReason(body.finish_reason).name.lower(),
            **{name: getattr(body.usage, name) for name in _LOGGED},
        )
        return entry.id


def prepared_run(planned: Plan, offer: Offer) -> Prepared:
    """Return a plan with the sampling, text and grammar of its run; any thread may call this.

    Its grammar has passed `check_grammar`. Raises GenerationRefused.
    """
    source = planned.grammar
    shows = _text(planned, planned.request.stop, offer)
    state = SamplerState(
        planned.request,
        vocabulary=offer.tokenizer.token_count,
        context=planned.prompt,
        output_index=planned.draw_offset,
        end_ids=offer.stop_ids,
    )
    grammar = offer.grammars.compile(source, planned.continued) if source is not None else None
    return Prepared(offer, planned, state, shows, grammar)


def _text(planned: Plan, stops: Sequence[str], offer: Offer) -> Visible:
    """Return the visible text of a run. Raises StopInvalid."""
    tokenizer, renderer = offer.tokenizer, offer.renderer
    first_stop = planned.request.output_tokens_min
    text = VisibleText(tokenizer, stops, planned.continued, first_stop)
    if not may_call(planned.request, planned.context.place.tools or ()):
        return text
    continued = tokenizer.decode_bytes(planned.continued)
    before = continued[: len(continued) - len(unfinished(continued))].decode(errors="replace")
    return CallingText(text, renderer.tools.format, before)


def _run(prepared: Prepared, seal_id: EntryId, number: int) -> Run:
    limit = prepared.offer.profile.context_tokens_max
    return Run(
        prepared.plan, seal_id, number, prepared.state, prepared.text, limit, prepared.grammar
    )


def _head(run: Run, loaded: Loaded) -> JournalHead:
    profile = loaded.offer.profile.digest
    return JournalHead(run.plan.request_id, run.seal_id, run.run, profile, loaded.numerics_class)


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
