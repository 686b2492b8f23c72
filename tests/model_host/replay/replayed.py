"""Conversations answered and replayed without a model: tokens follow from those before."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from model_host.generation import Plan, Run, VisibleText, gather, output_limit, plan
from model_host.kv import PagePool
from model_host.rendering import Contexts
from model_host.replay import (
    Computation,
    Conditions,
    RenderedCase,
    Replay,
    ReplayPages,
    collect,
    render_cases,
)
from model_host.sampling import RECIPE_DIGEST, SamplerState
from replica.conversation import Finding, ReplayMode, extend_digest, start_digest
from replica.ids import Digest, EntryId
from replica.log.body import FinishReason, Generation, Request, Sampling, Seal, Usage
from replica.log.entry import Conflict, Entry
from tests.model_host.generation.test_text import Bytes as Decoder
from tests.model_host.kv.paged import SLAB_BYTES
from tests.model_host.number_engine import VOCAB, NumberEngine, answer
from tests.model_host.planned import PROFILE, Scene
from tests.model_host.rendering.test_render import RENDERER
from tests.support.writers import said

HOST = replace(PROFILE, sampler_digest=RECIPE_DIGEST, context_tokens_max=4000)
CLASS = Digest(NumberEngine.numerics_class)
HERE = Conditions(
    HOST.digest, CLASS, HOST.render_recipe_digest, True, VOCAB, 4000, HOST.grammar_engine
)
KEY = b"k" * 32
Change = Callable[[Generation], Generation]


def run_of(planned: Plan, seal_id: EntryId) -> Run:
    state = SamplerState(
        planned.request, vocabulary=VOCAB, context=planned.prompt, output_index=planned.draw_offset
    )
    text = VisibleText(Decoder(), planned.request.stop, planned.continued)
    return Run(planned, seal_id, 7, state, text, HOST.context_tokens_max)


def make_run(conversation, rendered: RenderedCase) -> Run:
    case, context = rendered.case, rendered.context
    limit = output_limit(case.request, len(context.ids), HOST)
    planned = Plan(conversation, case.request_id, case.request, case.seal, context, limit)
    return run_of(planned, case.seal_id)


class Answered(Scene):
    """A conversation whose host is the number engine; it may lie."""

    def asks(
        self, text: str, tokens: int = 8, change: Change = lambda honest: honest, **more
    ) -> EntryId:
        """Ask and answer; return the answer."""
        return self.answers(self.ask(text, output_tokens_max=tokens, **more), change)

    def answers(self, request: EntryId, change: Change = lambda honest: honest) -> EntryId:
        """Answer a request greedily, to its limit; return the answer, as changed."""
        gathered = gather(self.held, self.ready(request), Contexts(0))
        return self.answers_by(request, plan(gathered, profile=HOST, renderer=RENDERER), change)

    def asks_on_a_branch(self, answer: EntryId, text: str, tokens: int = 8) -> EntryId:
        """Ask behind an answer that others follow; return the answer."""
        entries = self.held.log.entries
        basis = entries[entries[answer].header.parents[0]]
        message = self.add(said(text), [entries[answer]], basis)
        body = Request(self.host.public, Sampling(), output_tokens_max=tokens)
        return self.answers(self.add(body, [message], basis, Conflict.FORK).id)

    def answers_by(
        self, request: EntryId, planned: Plan, change: Change = lambda honest: honest
    ) -> EntryId:
        """Answer a request by a plan."""
        seal_id = self.host_writes(planned.seal, request)
        run = run_of(planned, seal_id)
        for token_id in answer(planned.prompt, planned.output_tokens_max):
            if run.finished is None:
                run.add_token(token_id)
        stream = extend_digest(start_digest(request, 7), tuple(run.token_ids))
        prompt = len(planned.prompt)
        usage = Usage(prompt_tokens=prompt, prefilled_tokens=prompt)
        honest = run.generation(usage, stream, profile=HOST, numerics_class=CLASS)
        told = change(honest)
        if told.draft_digest == honest.draft_digest:  # the drafts are those of the lie
            stream = extend_digest(start_digest(request, 7), told.token_ids)
            told = replace(told, draft_digest=stream)
        return self.host_writes(told, seal_id)

    def answers_though_refused(self, last: Entry) -> EntryId:
        """Ask behind an entry on a branch of its own; answer as no honest host would."""
        body = Request(self.host.public, Sampling())
        request = self.add(body, [last], conflict=Conflict.FORK).id
        ready = self.ready(request)
        counts = (1,) * len(ready.entries)
        seal = Seal(
            request, None, ready.entries, HOST.digest, ready.context_digest, Digest(bytes(32)),
            counts, ready.membership_heads,
        )  # fmt: skip
        seal_id = self.host_writes(seal, request)
        return self.host_writes(Generation((), (), 0, FinishReason.INTERRUPTED), seal_id)


class Replaying:
    """One replay over a pool of 30 slabs, driven as the engine's thread drives it."""

    def __init__(
        self,
        scene: Scene,
        mode: ReplayMode = ReplayMode.VERIFY,
        here: Conditions = HERE,
        *,
        rows: int = 512,
    ) -> None:
        self.collected = collect(scene.held)
        cases = render_cases(self.collected, RENDERER, here.profile)
        self.replay = Replay(mode, cases, here, partial(make_run, scene.held.id))
        self.engine = NumberEngine()
        budget = 31 * SLAB_BYTES
        self.pool = PagePool(self.engine.memory, tail_slots=2, budget_bytes=budget)
        self.pages = ReplayPages(self.engine, self.pool, KEY)
        self.rows = rows

    def run(self, conversation: bytes = b"") -> dict[EntryId, Finding]:
        found = list(self.replay.start())
        computation = Computation(self.replay, self.pages, conversation)
        while computation.work is not None:
            found += computation.receive(computation.work(self.rows))
            self.pool.check_integrity()
        assert computation.done_tokens == computation.total_tokens
        self.pages.free()
        assert self.pool.used_bytes == 0 or conversation
        findings = {finding.answer: finding for finding in found}
        assert len(findings) == len(found)
        assert findings.keys() == {*self.collected.order}
        return findings


def interrupted(honest: Generation) -> Generation:
    return replace(honest, finish_reason=FinishReason.INTERRUPTED, finish_detail="a crash")
