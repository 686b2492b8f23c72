"""The answer to one request in the log: a refusal, or a seal and a generation (spec/07-host §4).

model_host/io/run_driver.py computes the tokens between the two;
model_host/schedule.py decides which request is next.
"""

import os
from contextlib import closing
from dataclasses import dataclass

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from model_host.engine import Tokenizer
from model_host.io.engine_thread import EngineThread
from model_host.io.journal import Journals
from model_host.io.namespaces import Namespaces
from model_host.io.run_driver import RunDriver
from model_host.io.run_table import RunTable
from model_host.journal_records import JournalHead
from model_host.owner import owner_of
from model_host.profile import Profile
from model_host.refusals import StopInvalid, finish_detail
from model_host.render import Template, render, render_digests
from model_host.runner import Plan, Run, Visible, context_items, plan
from model_host.sampler_state import Choice, SamplerState
from model_host.schedule import Refuse
from model_host.text import VisibleText
from replica.conversation import Conversation, Sealable, extend_digest, start_digest
from replica.errors import AntiphonError, HostError
from replica.ids import Digest, EntryId, short
from replica.io import Replica
from replica.log import FinishReason, Request, Sampling, Usage
from replica.order import SealNode

log = structlog.get_logger()

_NOT_THE_SAME = "the host can't go on bit-identically. Ask again: the answer goes on from here."
_LOGGED = ("prompt_tokens", "cached_tokens", "restored_tokens", "prefilled_tokens", "output_tokens")
_NO_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class Offer:
    """The model, profile and limits this host runs requests with."""

    profile: Profile
    template: Template
    tokenizer: Tokenizer
    numerics_class: Digest
    stop_ids: frozenset[int]


@dataclass(slots=True)
class AnswerCounters:
    """Counts of answered requests since start."""

    generations: int = 0
    refusals: int = 0


class RequestHandler:
    """Answers requests in the order of model_host/schedule.py."""

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
        self.counters = AnswerCounters()
        self.runs = RunTable(replica, key)

    # --- the three ways to an answer ----------------------------------------------

    async def begin(self, held: Conversation, ready: Sealable) -> None:
        """Seal the next request and generate, or refuse it if it can't be planned."""
        request_id = ready.request
        try:
            planned = self._plan(held, ready)
            # All checks that may refuse come before the seal: a sealed request must be answered.
            state, shows = self._sampler_and_text(planned)
        except HostError as error:
            await self.refuse(held, _refusal(held, request_id, error))
            return
        seal = planned.seal
        entry = await self._replica.append(
            held.id, seal, parents=(request_id,), basis=seal.prev_seal
        )
        if entry.id not in held.order.nodes:
            raise HostError("its seal does not count")
        run = self._run(planned, entry.id, _new_run_number(), state, shows)
        await self._generate(held, run, None)

    async def resume(self, held: Conversation, request_id: EntryId) -> None:
        """Resume a run after a crash with the same tokens, or close it if that is impossible."""
        node = held.order.nodes[held.order.seal_of[request_id]]
        head, journaled = self._journaled(held, request_id, node.id)
        try:
            planned = self._plan(held, _sealed(node, request_id))
            state, shows = self._sampler_and_text(planned)
        except HostError as error:
            # Sealed with another model, a longer context or other rules than the present ones.
            await self._interrupt(held, request_id, finish_detail(error))
            return
        same_text = planned.seal.render_digest == node.seal.render_digest
        if not same_text or head != self._head(request_id, node.id, head.run):
            await self._interrupt(held, request_id, _NOT_THE_SAME)
            return
        log.info("resuming", request=short(request_id), tokens=len(journaled or ()))
        run = self._run(planned, node.id, head.run, state, shows)
        await self._generate(held, run, journaled)

    async def close(self, held: Conversation, request_id: EntryId, failure: Exception) -> None:
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

    def _plan(self, held: Conversation, ready: Sealable) -> Plan:
        offer = self._offer
        return plan(
            held, ready, profile=offer.profile, template=offer.template, encoder=offer.tokenizer
        )

    def _sampler_and_text(self, planned: Plan) -> tuple[SamplerState, Visible]:
        """Return the sampler state of a run and its visible text. Raises GenerationRefused."""
        request, tokenizer = planned.request, self._offer.tokenizer
        state = SamplerState(
            request,
            vocabulary=tokenizer.token_count,
            context=planned.prompt,
            output_index=planned.draw_offset,
            end_ids=self._offer.stop_ids,
        )
        first_stop = request.output_tokens_min
        return state, VisibleText(tokenizer, request.stop, planned.continued, first_stop)

    def _run(
        self, planned: Plan, seal_id: EntryId, number: int, state: SamplerState, shows: Visible
    ) -> Run:
        offer = self._offer
        limit = offer.profile.context_tokens_max
        return Run(planned, seal_id, number, state, shows, limit)

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
        run = self._shown_run(held, request_id, node, head.run)
        for choice in journaled or ():
            run.add_token(choice.token_id, choice.logprobs)
        if run.finished is None:
            run.end(FinishReason.INTERRUPTED, problem)
        ids = tuple(choice.token_id for choice in journaled or ())
        digest = extend_digest(start_digest(request_id, head.run), ids)
        await self._append(held, run, Usage(), digest, head)

    def _shown_run(
        self, held: Conversation, request_id: EntryId, node: SealNode, number: int
    ) -> Run:
        """Return a run that repeats recorded tokens only, with the text shown of them."""
        request = _request(held, request_id)
        offer = self._offer
        prompt, continued = self._prompt_as_sealed(held, node)
        limit = request.output_tokens_max or _NO_LIMIT
        planned = Plan(held.id, request_id, request, node.seal, prompt, limit, continued)
        shows: Visible
        first_stop = request.output_tokens_min
        try:
            shows = VisibleText(offer.tokenizer, request.stop, planned.continued, first_stop)
        except StopInvalid:
            shows = VisibleText(offer.tokenizer, (), planned.continued)
        # Without the prompt the ids are another model's, and have no text here.
        shows = shows if prompt else _NoText()
        # Nothing is chosen, and the present rules may refuse the request's own sampling.
        state = SamplerState(
            Request(request.host, Sampling()),
            vocabulary=0,
            end_ids=offer.stop_ids.union(request.stop_tokens),
        )
        return Run(planned, node.id, number, state, shows, _NO_LIMIT)

    def _prompt_as_sealed(self, held: Conversation, node: SealNode) -> tuple[tuple[int, ...], int]:
        """Return the prompt and the number of its tokens the answer continues.

        Both are empty if the prompt renders differently here.
        """
        offer = self._offer
        try:
            items = context_items(held, node.parent, node.seal.entries)
            rendered = render(items, offer.template, offer.tokenizer)
        except HostError:
            return (), 0
        digests = render_digests(rendered, offer.template, offer.tokenizer)
        if digests[-1] != node.seal.render_digest:
            return (), 0
        return tuple(rendered.token_ids), rendered.continued_tokens

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

    def push(self, _token_id: int) -> bytes:
        """Return no bytes."""
        return b""

    def finish(self) -> bytes:
        """Return no bytes."""
        return b""


def _request(held: Conversation, request_id: EntryId) -> Request:
    request = held.order.request(request_id)
    assert request is not None, "only requests are answered"
    return request


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
