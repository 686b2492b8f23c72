"""The answer to one request in the log: a refusal, or a seal and a generation (spec/07-host §4).

model_host/io/answers/run_driver.py computes the tokens between the two,
model_host/io/answers/answer_writer.py appends the last entry;
model_host/scheduling/schedule.py decides which request is next.
"""

from collections.abc import Iterable
from contextlib import AsyncExitStack, closing
from functools import partial

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from model_host.batching import AnswerCounters
from model_host.generation import JournalHead, Plan, Run, gather, plan, standing
from model_host.io.answers.answer_writer import AnswerWriter, request_of
from model_host.io.answers.foreign_seals import ForeignSeals
from model_host.io.answers.run_driver import RunDriver
from model_host.io.answers.run_table import RunTable
from model_host.io.contexts import HubCheckpoints, Prepared, Rendering, new_run_number, prepared_run
from model_host.io.files import Journals
from model_host.io.profiles import GrammarChecker, Loaded, Offer, Profiles
from model_host.refusals import ObligationsOpen, finish_detail
from model_host.sampling import Choice
from model_host.scheduling import Refuse, expired, owner_of
from replica.conversation import Conversation, Sealable
from replica.errors import AntiphonError, HostError
from replica.ids import EntryId, short
from replica.io import Repeated, Replica, now_ms
from replica.log import Conflict, Entry, FinishReason
from replica.order import SealNode

log = structlog.get_logger()

_NOT_THE_SAME = "the host can't go on bit-identically. Ask again: the answer goes on from here."


class RequestHandler:
    """Answers requests in the order of model_host/scheduling/schedule.py."""

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
        self.rendering = Rendering()
        self._writer = AnswerWriter(replica, profiles.offers, journals, self.rendering)
        self.runs = RunTable(replica, key)
        self._sealing = set[EntryId]()
        """Requests that this process seals, until the end of their answers."""
        self._foreign = ForeignSeals()
        self._lines = Repeated()

    @property
    def counters(self) -> AnswerCounters:
        """Counts of answered requests since start."""
        return self._writer.counters

    async def close(self) -> None:
        """End the rendering in progress, whose process may be stopped, then its thread."""
        if self.rendering.is_busy:
            for offer in self._profiles.offers.all:
                offer.runner.interrupt()
        await self.rendering.close()

    # --- the three ways to an answer ----------------------------------------------

    async def begin(self, held: Conversation, ready: Sealable) -> bool:
        """Seal the next request and generate, or refuse it if it can't be planned.

        Returns False for a queued request that waits for results of tools. Does nothing if
        the turn changed while the context was rendered: a CANCEL may have come, or a
        revocation. The schedule then decides again. Raises HostKeyShared.
        """
        async with AsyncExitStack() as stack:
            return await self._begin(held, ready, stack)

    async def _begin(self, held: Conversation, ready: Sealable, stack: AsyncExitStack) -> bool:
        """Begin an answer; its profile stays loaded until the end of `stack`."""
        request_id, before = ready.request, standing(held, ready.request)
        refusal: HostError | None = None
        try:
            # All checks that may refuse come before the seal: a sealed request must be answered.
            offer = self._profiles.offers.choose(request_of(held, request_id).profile)
            prepared = await self._prepare(held, ready, offer)
            loaded = await stack.enter_async_context(self._profiles.using(offer))
        except HostError as error:
            refusal = error
        # A CANCEL may have come before this task began, too.
        if (now := standing(held, request_id)) is None or now != before:
            log.info("the turn changed", conversation=short(held.id), request=short(request_id))
            return True
        if isinstance(refusal, ObligationsOpen) and _queues(held, request_id):
            # The detail names calls in the words of a member: it is not for the log (HOST-85).
            log.info("waiting for results", conversation=short(held.id), request=short(request_id))
            return False
        # Rendering, and waiting for a profile, take their time.
        refusal = refusal or expired(request_of(held, request_id), now_ms())
        if refusal is not None:
            await self._writer.refuse(held, _refusal(held, request_id, refusal))
            return True
        self._sealing.add(request_id)
        stack.callback(self._sealing.discard, request_id)
        seal = prepared.plan.seal
        entry = await self._replica.append(
            held.id, seal, parents=(request_id,), basis=seal.prev_seal
        )
        if entry.id not in held.order.nodes:
            if request_id not in held.order.seal_of:
                raise HostError("its seal does not count")
            raise self._foreign.note(held.id, _counting(held, request_id))
        offer.contexts.keep(entry.id, prepared.plan.context)
        run = prepared.run(entry.id, new_run_number())
        await self._generate(held, run, None, loaded)
        return True

    async def resume(self, held: Conversation, request_id: EntryId) -> None:
        """Resume a run after a crash with the same tokens, or close it if that is impossible.

        Raises HostKeyShared for a run that is another process's.
        """
        await self._replica.flush()  # whose seal it is, is noted once the seal is durable
        node = _counting(held, request_id)
        self._foreign.check(held.id, node)
        async with AsyncExitStack() as stack:
            try:
                # The seal's profile: the default of a host may change between two starts.
                offer = self._profiles.offers.of_begun(node.seal.profile)
                prepared = await self._prepare(held, _sealed(node, request_id), offer)
                loaded = await stack.enter_async_context(self._profiles.using(offer))
            except HostError as error:
                # Sealed with another model, a longer context or other rules than the present ones.
                await self._writer.interrupt(held, request_id, finish_detail(error))
                return
            await self._resume(held, node, prepared, loaded)

    async def _resume(
        self, held: Conversation, node: SealNode, prepared: Prepared, loaded: Loaded
    ) -> None:
        request_id = prepared.plan.request_id
        journaled = self._writer.journaled(held, request_id, node.id)
        number = journaled[0].run if journaled is not None else new_run_number()
        run = prepared.run(node.id, number)
        same_text = prepared.plan.seal.render_digest == node.seal.render_digest
        same_host = journaled is None or journaled[0] == _head(run, loaded)
        if not (same_text and same_host):
            await self._writer.interrupt(held, request_id, _NOT_THE_SAME)
            return
        choices = journaled[1] if journaled is not None else None
        if times := self._lines.due(request_id):  # it is tried again as long as a disk refuses it
            log.info(
                "resuming",
                conversation=short(held.id),
                request=short(request_id),
                run=number,
                tokens=len(choices or ()),
                times=times,
            )
        loaded.offer.contexts.keep(node.id, prepared.plan.context)
        await self._generate(held, run, choices, loaded)

    async def close_request(
        self, held: Conversation, request_id: EntryId, failure: Exception
    ) -> None:
        """Close a request whose answer failed with an error that would recur.

        Raises HostKeyShared for one that another process answers.
        """
        await self._replica.flush()  # as in `resume`
        if held.order.generation_of(request_id) is not None:
            return
        seal = held.order.seal_of.get(request_id)
        if seal is not None:
            self._foreign.check(held.id, held.order.nodes[seal])
        known = failure if isinstance(failure, AntiphonError) else HostError("The host failed.")
        if seal is not None:
            await self._writer.interrupt(held, request_id, finish_detail(known))
        else:
            await self._writer.refuse(held, _refusal(held, request_id, known))

    async def refuse(self, held: Conversation, refusal: Refuse) -> None:
        """Append the refusal of a request that does not begin."""
        await self._writer.refuse(held, refusal)

    def note_seals(self, held: Conversation, entries: Iterable[Entry]) -> None:
        """Note the seals among entries that came while the conversation was synchronized.

        An earlier process of this host can't have written them, since it has ended: another
        one with this key is at work, and its answers are its own.
        """
        for entry in entries:
            node = held.order.nodes.get(entry.id)
            if node is None or entry.header.author != self._replica.public:
                continue
            if node.seal.request not in self._sealing or not self._replica.wrote(entry):
                self._foreign.note(held.id, node)

    def forget_answered(self, held: Conversation) -> None:
        """Delete journals of requests that are answered. Raises StoreError."""
        for request_id in self._journals.requests():
            if held.order.generation_of(request_id) is not None:
                self._journals.discard(request_id)

    # --- plans and runs -----------------------------------------------------------

    async def _prepare(self, held: Conversation, ready: Sealable, offer: Offer) -> Prepared:
        """Plan a request in the rendering thread. Raises GenerationRefused."""
        gathered, owner = gather(held, ready, offer.contexts), owner_of(held)
        make = partial(plan, gathered, profile=offer.profile, renderer=offer.renderer)
        planned = await self.rendering.run(make, owner, for_answer=True)
        await self.check_grammar(planned, owner)
        return await self.rendering.run(
            partial(prepared_run, planned, offer), owner, for_answer=True
        )

    async def check_grammar(self, planned: Plan, payer: bytes) -> None:
        """Raise GrammarInvalid for a plan whose grammar can't be compiled within limits.

        Payers have their grammars checked in turn.
        """
        if planned.grammar is not None:
            await self._checker.check(planned.grammar, payer)

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
                journaled,
                owner=owner_of(held),
                domain=spaces.pages(held),
                namespace=spaces.stored(held),
            )
            if held.order.seal_of.get(run.plan.request_id) not in (None, run.seal_id):
                self._journals.discard(run.plan.request_id)  # no run goes on under this seal
                raise self._foreign.note(held.id, _counting(held, run.plan.request_id))
            generation_id = await self._writer.append(
                held, run, driver.usage, driver.frames.digest, head
            )
            if driver.usage.prompt_tokens:  # else nothing was computed
                ids = [*run.plan.prompt, *run.token_ids]
                loaded.thread.checkpoint(
                    held.id, spaces.stored(held), run.seal_id, generation_id, ids
                )
                self._hub_tier.note(held, loaded.offer)


def _head(run: Run, loaded: Loaded) -> JournalHead:
    profile = loaded.offer.profile.digest
    return JournalHead(run.plan.request_id, run.seal_id, run.run, profile, loaded.numerics_class)


def _counting(held: Conversation, request_id: EntryId) -> SealNode:
    """Return the seal of a sealed request that counts."""
    return held.order.nodes[held.order.seal_of[request_id]]


def _queues(held: Conversation, request_id: EntryId) -> bool:
    return held.log.entries[request_id].header.conflict == Conflict.QUEUE


def _refusal(held: Conversation, request_id: EntryId, error: AntiphonError) -> Refuse:
    return Refuse(held.id, request_id, FinishReason.REFUSED, finish_detail(error))


def _sealed(node: SealNode, request_id: EntryId) -> Sealable:
    """Return a seal's contents in the form they had before sealing."""
    seal = node.seal
    return Sealable(
        request_id, node.parent, seal.entries, seal.membership_heads, seal.context_digest
    )
