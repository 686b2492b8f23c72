"""The host at work: follow conversations, answer requests (spec/07-host §4).

Thin driver of model_host/runner.py over a replica (replica/aio/client.py) and
the engine's worker. One generation runs at a time; the others wait in the
order they came, the conversations taking turns.
"""

import asyncio
import os
import time
from dataclasses import dataclass, replace

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from model_host.aio.journal import Journal, Journals
from model_host.aio.worker import Counters, Found, Worker
from model_host.errors import PrefillCancelled, TokenizerBytesMissing
from model_host.profile import Profile
from model_host.refusals import GenerationRefused
from model_host.render import Template
from model_host.runner import JournalHead, Logits, Plan, Run, plan
from model_host.sampler import sampler_for
from model_host.text import VisibleText
from model_host.tokenizer import Tokenizer
from replica.aio.client import Client
from replica.body import FinishReason, Generation, Genesis, Usage
from replica.conversation import Conversation
from replica.drafts import sign_draft
from replica.effects import Draft, EntriesAcked, EntriesAdmitted, Event, StateChanged, SyncState
from replica.errors import AntiphonError, HostError
from replica.ids import ConversationId, Digest, EntryId, short
from replica.sealing import Sealable, open_requests, sealable

log = structlog.get_logger()

PROGRESS_EVERY_S = 0.1

_LOGGED = ("prompt_tokens", "cached_tokens", "restored_tokens", "prefilled_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Offer:
    """What this host runs requests with."""

    profile: Profile
    template: Template
    tokenizer: Tokenizer
    numerics_class: Digest
    stop_ids: frozenset[int]


class Host:
    """Answers the requests that name it, one after the other."""

    def __init__(
        self,
        client: Client,
        key: Ed25519PrivateKey,
        worker: Worker,
        journals: Journals,
        offer: Offer,
    ) -> None:
        """Follow through `client`, compute through `worker`."""
        self._client = client
        self._key = key
        self._worker = worker
        self._journals = journals
        self._offer = offer
        self._awake = asyncio.Event()
        self._running: Run | None = None
        self._last_served: dict[ConversationId, int] = {}
        self._served = 0
        client.listen(self._receive)

    @property
    def counters(self) -> Counters:
        """What happened to derived state since start."""
        return self._worker.counters

    @property
    def running(self) -> int:
        """Generations running now."""
        return int(self._running is not None)

    @property
    def waiting(self) -> int:
        """Requests waiting now."""
        shelf = tuple(self._client.shelf.values())
        return sum(len(open_requests(c, self._client.public)) for c in shelf) - self.running

    def _receive(self, event: Event) -> None:
        match event:
            case EntriesAdmitted():
                self._awake.set()
            case EntriesAcked(conversation, positions):
                run = self._running
                if run is not None and any(p.id == run.seal_id for p in positions):
                    self._send_all_drafts(run)
            case StateChanged(conversation, SyncState.SYNCHRONIZED):
                self._awake.set()
                run = self._running
                if run is not None and run.plan.conversation == conversation:
                    self._send_all_drafts(run)
            case _:
                pass

    async def run(self) -> None:
        """Answer requests until cancelled."""
        while True:
            self._awake.clear()
            found = self._next()
            if found is None:
                await self._awake.wait()
                continue
            held, ready = found
            self._served += 1
            self._last_served[held.id] = self._served
            try:
                await self._answer(held, ready)
            except AntiphonError as error:
                # The log takes nothing now (disk full, say); the request stays open.
                log.warning("could not answer", reason=error.reason, detail=error.detail)
                await self._client.wait_for(lambda: False, 1.0)

    def _next(self) -> tuple[Conversation, Sealable | EntryId] | None:
        """Return the request whose turn it is: its branch free, its conversation least served."""
        shelf = sorted(self._client.shelf.values(), key=lambda c: self._last_served.get(c.id, 0))
        for held in shelf:
            # A host syncs its own lanes before its first seal: it may have sealed already.
            if self._client.state(held.id) is not SyncState.SYNCHRONIZED:
                continue
            if not held.is_member(self._client.public):
                continue
            for request_id in open_requests(held, self._client.public):
                if request_id in held.order.seal_of:
                    return held, request_id
                ready = sealable(held, request_id)
                if ready is not None:
                    return held, ready
        return None

    # --- one request ----------------------------------------------------------

    async def _answer(self, held: Conversation, ready: Sealable | EntryId) -> None:
        if isinstance(ready, Sealable):
            await self._begin(held, ready)
        else:
            await self._resume(held, ready)

    async def _begin(self, held: Conversation, ready: Sealable) -> None:
        request_id = ready.request
        if request_id in held.order.cancels:
            await self._refuse(
                held, request_id, FinishReason.CANCELLED, "cancelled before it began"
            )
            return
        try:
            planned = self._plan(held, ready)
            sampler_for(planned.request.sampling)
        except (GenerationRefused, TokenizerBytesMissing, HostError) as error:
            detail = f"{error.reason}: {error.detail} {error.next_step}"
            await self._refuse(held, request_id, FinishReason.REFUSED, detail)
            return
        basis = planned.seal.prev_seal
        entry = await self._client.append(held.id, planned.seal, parents=(request_id,), basis=basis)
        run = self._new_run(planned, entry.id, int.from_bytes(os.urandom(8), "little") or 1)
        head = self._head(run)
        await self._generate(held, run, self._journals.create(head), [])

    async def _resume(self, held: Conversation, request_id: EntryId) -> None:
        """Go on after a crash: same run, same tokens; or close what can't be gone on with."""
        seal_id = held.order.seal_of[request_id]
        node = held.order.nodes[seal_id]
        ready = Sealable(
            request_id,
            node.parent,
            node.seal.entries,
            node.seal.membership_heads,
            node.seal.context_digest,
        )
        planned = self._plan(held, ready)
        found = self._journals.read(request_id)
        same_text = planned.seal.render_digest == node.seal.render_digest
        run_number = found[0].run if found is not None else 0
        run = self._new_run(planned, seal_id, run_number or int.from_bytes(os.urandom(8), "little"))
        if not same_text or (found is not None and found[0] != self._head(run)):
            shown = found[1] if found is not None else []
            for token_id in shown:
                run.take(token_id)
            run.end(FinishReason.INTERRUPTED, "the host can't resume this run bit-identically")
            await self._finish(held, run, Usage(prompt_tokens=len(planned.prompt)), None)
            return
        log.info("resuming", request=short(request_id), tokens=len(found[1]) if found else 0)
        tokens = found[1] if found is not None else []
        head = self._head(run)
        journal = self._journals.resume(head, tokens) if found else self._journals.create(head)
        await self._generate(held, run, journal, tokens)

    def _plan(self, held: Conversation, ready: Sealable) -> Plan:
        offer = self._offer
        return plan(
            held,
            ready,
            profile=offer.profile,
            template=offer.template,
            encoder=offer.tokenizer,
        )

    def _new_run(self, planned: Plan, seal_id: EntryId, number: int) -> Run:
        request = planned.request
        return Run(
            planned,
            seal_id,
            number,
            sampler_for(request.sampling),
            VisibleText(self._offer.tokenizer, request.stop),
            self._offer.stop_ids,
            self._offer.profile.context_tokens_max,
        )

    def _head(self, run: Run) -> JournalHead:
        return JournalHead(
            run.plan.request_id,
            run.seal_id,
            run.run,
            self._offer.profile.digest,
            self._offer.numerics_class,
        )

    # --- generating -------------------------------------------------------------

    async def _generate(
        self, held: Conversation, run: Run, journal: Journal, journaled: list[int]
    ) -> None:
        """Prefill, then token by token: journal before show, cancel between steps."""
        self._running = run
        began = time.monotonic()
        first_token = began
        usage = Usage(prompt_tokens=len(run.plan.prompt))
        try:
            for token_id in journaled:
                run.take(token_id)
            self._send_all_drafts(run)
            try:
                usage, logits = await self._prefill(held, run, usage)
                while run.finished is None:
                    if run.plan.request_id in held.order.cancels:
                        run.end(FinishReason.CANCELLED, "cancelled by a member")
                        break
                    token_id = run.choose(logits)
                    journal.append(token_id)
                    run.take(token_id)
                    if len(run.token_ids) == len(journaled) + 1:
                        first_token = time.monotonic()
                    self._send_draft(held, run, run.drafts[-1])
                    if run.finished is None:
                        logits = await self._worker.decode(held.id, token_id)
            except PrefillCancelled:
                run.end(FinishReason.CANCELLED, "cancelled by a member")
            except HostError as error:
                run.end(FinishReason.INTERRUPTED, f"{error.reason}: {error.detail}")
            ended = time.monotonic()
            usage = replace(
                usage,
                first_token_us=int((first_token - began) * 1e6),
                decode_us=int((ended - first_token) * 1e6),
            )
            await self._finish(held, run, usage, journal)
        finally:
            self._running = None

    async def _prefill(self, held: Conversation, run: Run, usage: Usage) -> tuple[Usage, Logits]:
        """Bring the context into memory, telling readers how far it is."""
        loop = asyncio.get_running_loop()
        last_told = 0.0

        def on_progress(found: Found, prefilled: int) -> None:
            nonlocal usage, last_told
            usage = replace(
                usage, cached_tokens=found.cached_tokens, restored_tokens=found.restored_tokens
            )
            if time.monotonic() - last_told >= PROGRESS_EVERY_S and not run.token_ids:
                last_told = time.monotonic()
                frame = run.progress(usage, prefilled)
                loop.call_soon_threadsafe(self._send_draft, held, run, frame)

        ids = [*run.plan.prompt, *run.token_ids]
        prefilled = await self._worker.prefill(
            held.id,
            self._offer_salt(held),
            ids,
            on_progress=on_progress,
            cancelled=lambda: run.plan.request_id in held.order.cancels,
        )
        found = prefilled.found
        # Tokens of the answer itself, brought back after a crash, are no part of the prompt.
        prompt = len(run.plan.prompt)
        cached = min(found.cached_tokens, prompt)
        restored = min(found.restored_tokens, prompt - cached)
        usage = replace(
            usage,
            cached_tokens=cached,
            restored_tokens=restored,
            prefilled_tokens=prompt - cached - restored,
        )
        return usage, prefilled.logits

    def _offer_salt(self, held: Conversation) -> bytes:
        """Return the owner whose conversations may share derived state: never two owners."""
        genesis = held.log.body(EntryId(held.id))
        assert isinstance(genesis, Genesis), "a followed conversation has its genesis"
        return genesis.owners[0]

    async def _finish(
        self, held: Conversation, run: Run, usage: Usage, journal: Journal | None
    ) -> None:
        """Append the generation, then drop the journal, then keep a checkpoint."""
        offer = self._offer
        body = run.generation(usage, profile=offer.profile, numerics_class=offer.numerics_class)
        entry = await self._client.append(held.id, body, parents=(run.seal_id,), basis=run.seal_id)
        if journal is not None:
            journal.close(delete=True)
        else:
            self._journals.discard(run.plan.request_id)
        self.counters.generations += 1
        log.info(
            "answered",
            request=short(run.plan.request_id),
            finish=FinishReason(body.finish_reason).name.lower(),
            **{name: getattr(body.usage, name) for name in _LOGGED},
        )
        ids = [*run.plan.prompt, *run.token_ids]
        await self._worker.checkpoint(held.id, self._offer_salt(held), run.seal_id, entry.id, ids)

    async def _refuse(
        self, held: Conversation, request_id: EntryId, reason: FinishReason, detail: str
    ) -> None:
        body = Generation((), (), 0, reason, finish_detail=detail)
        basis = held.log.entries[request_id].header.basis
        await self._client.append(held.id, body, parents=(request_id,), basis=basis)
        self.counters.refusals += 1
        log.info("refused", request=short(request_id), detail=detail)

    # --- drafts -----------------------------------------------------------------

    def _send_draft(self, held: Conversation, run: Run, frame: Draft) -> None:
        # Shown only once the seal is durable at the hub: what it answers must exist first.
        if self._client.is_acked(held.id, run.seal_id):
            self._client.send_draft(sign_draft(frame, self._key))

    def _send_all_drafts(self, run: Run) -> None:
        held = self._client.shelf[run.plan.conversation]
        for frame in run.drafts:
            self._send_draft(held, run, frame)
