"""The entries that end requests: refusals and generations (spec/07-host §4).

A sealed request whose run can't go on is closed here with the text that was shown.
"""

from functools import partial

import structlog

from model_host.batching import AnswerCounters
from model_host.generation import JournalHead, Plan, Run, gather_branch, render_branch
from model_host.grammar import GrammarSource, source_for
from model_host.io.contexts import NoText, Rendering, new_run_number, text_of
from model_host.io.files import Journals
from model_host.io.profiles import Offer, Offers
from model_host.refusals import GenerationRefused, StopInvalid, finish_detail
from model_host.rendering import Context
from model_host.sampling import Choice, SamplerState
from model_host.scheduling import Refuse, owner_of
from replica.conversation import Conversation, extend_digest, start_digest
from replica.errors import HostError
from replica.ids import Digest, EntryId, short
from replica.io import Replica
from replica.log import FinishReason, Request, Sampling, Usage
from replica.order import SealNode
from replica.refusals import BodyTooLarge

log = structlog.get_logger()

_LOGGED = ("prompt_tokens", "cached_tokens", "restored_tokens", "prefilled_tokens", "output_tokens")
_NO_LIMIT = 2**31


class AnswerWriter:
    """Appends the last entry of each request, and counts it."""

    def __init__(
        self, replica: Replica, offers: Offers, journals: Journals, rendering: Rendering
    ) -> None:
        """Append through `replica`, read shown tokens from `journals`, render in `rendering`."""
        self._replica = replica
        self._offers = offers
        self._journals = journals
        self._rendering = rendering
        self.counters = AnswerCounters()

    async def refuse(self, held: Conversation, refusal: Refuse) -> None:
        """Append the refusal of a request."""
        request_id = refusal.request
        basis = held.log.entries[request_id].header.basis
        await self._replica.append(held.id, refusal.body, parents=(request_id,), basis=basis)
        reason = self.counters.note_refusal(refusal.finish, refusal.detail)
        # The detail may repeat the request's text, such as its grammar: it is for members alone.
        log.info(
            "refused",
            conversation=short(held.id),
            request=short(request_id),
            reason=reason,
        )

    async def append(
        self,
        held: Conversation,
        run: Run,
        usage: Usage,
        draft_digest: Digest,
        head: JournalHead | None,
    ) -> EntryId:
        """Append the generation of a finished run, then drop the journal; return its id.

        Without a head nothing was computed. Raises BodyTooLarge, StoreError.
        """
        offer = self._offers.get(head.profile) if head is not None else None
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

    def journaled(
        self, held: Conversation, request_id: EntryId, seal_id: EntryId
    ) -> tuple[JournalHead, list[Choice]] | None:
        """Return head and tokens of a seal's journal, None if there is none."""
        found = self._journals.read(request_id, request_of(held, request_id).logprobs)
        return found if found is not None and found[0].seal == seal_id else None

    # --- requests that are not computed to their end ------------------------------

    async def interrupt(self, held: Conversation, request_id: EntryId, problem: str) -> None:
        """Close a sealed request without computing; the text shown is kept."""
        node = held.order.nodes[held.order.seal_of[request_id]]
        head, journaled = self.journaled(held, request_id, node.id) or (None, [])
        number = head.run if head is not None else new_run_number()
        profile = head.profile if head is not None else None
        run = await self._shown_run(held, request_id, node, number, profile)
        for choice in journaled:
            run.add_token(choice.token_id, choice.logprobs)
        if run.finished is None:
            run.end(FinishReason.INTERRUPTED, problem)
        digest = start_digest(request_id, number)
        ids = tuple(choice.token_id for choice in journaled)
        try:
            await self.append(held, run, Usage(), extend_digest(digest, ids), head)
        except BodyTooLarge as error:
            # It keeps no tokens, since a request without an answer would be the end of its branch.
            log.exception("an answer is lost", request=short(request_id))
            empty = Run(run.plan, node.id, number, run.sampler_state, NoText(), _NO_LIMIT)
            empty.end(FinishReason.INTERRUPTED, finish_detail(error))
            await self.append(held, empty, Usage(), digest, None)

    async def _shown_run(
        self,
        held: Conversation,
        request_id: EntryId,
        node: SealNode,
        number: int,
        profile: Digest | None,
    ) -> Run:
        """Return a run that repeats tokens of a profile only, with the text shown of them."""
        request = request_of(held, request_id)
        offer = self._offers.of_seal(node)
        context = await self._context_as_sealed(held, node, offer)
        limit = request.output_tokens_max or _NO_LIMIT
        was_bound = profile == offer.profile.digest
        source = _grammar_of(request, context, offer) if was_bound else None
        planned = Plan(held.id, request_id, request, node.seal, context, limit, source)
        try:
            shows = text_of(planned, request.stop, offer)
        except StopInvalid:
            shows = text_of(planned, (), offer)
        # Without the prompt the ids are another model's, and have no text here.
        shows = shows if context.ids else NoText()
        # Nothing is chosen, and the present rules may refuse the request's own sampling.
        state = SamplerState(
            Request(request.host, Sampling()),
            vocabulary=0,
            end_ids=offer.stop_ids.union(request.stop_tokens),
        )
        # Tokens that filled the context ended the answer, if that is known here (HOST-19).
        is_its_own = offer.profile.digest == node.seal.profile
        room = offer.profile.context_tokens_max if is_its_own else _NO_LIMIT
        return Run(planned, node.id, number, state, shows, room)

    async def _context_as_sealed(self, held: Conversation, node: SealNode, offer: Offer) -> Context:
        """Return the context of a seal; the empty one if it renders differently here."""
        renderer = offer.renderer
        try:
            branch, room = gather_branch(held, node, offer.contexts), offer.room
            work = partial(render_branch, branch, renderer, room)
            rendered = await self._rendering.run(work, owner_of(held), for_answer=True)
        except HostError:
            return renderer.empty
        same = rendered.context.digest == node.seal.render_digest
        return rendered.context if same else renderer.empty


def _grammar_of(request: Request, context: Context, offer: Offer) -> GrammarSource | None:
    """Return the grammar that a run was bound by; None where the present rules refuse it."""
    try:
        return source_for(request, context.place.tools or (), offer.renderer.turns.format)
    except GenerationRefused:
        return None


def request_of(held: Conversation, request_id: EntryId) -> Request:
    """Return the body of a request that is answered."""
    request = held.order.request(request_id)
    assert request is not None, "only requests are answered"
    return request
