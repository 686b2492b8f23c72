"""The driver of one run, from its context to its last token (spec/07-host §4 steps 4 to 8).

Drives a Run of model_host/runner.py with the engine's worker: prefill, then
token by token, each in the journal before readers see it. A run is notified of
a CANCEL, because the engine's thread reads no log (DECISIONS D67).
model_host/io/request_handler.py writes the entries in the log.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from model_host.engine_api import Logits
from model_host.errors import PrefillCancelled
from model_host.io.journal import Journal
from model_host.io.worker import Found, Worker
from model_host.kv import Hold
from model_host.prefill import Cancellation
from model_host.refusals import finish_detail
from model_host.runner import Run
from replica.conversation import Conversation, Draft
from replica.errors import HostError
from replica.ids import EntryId
from replica.limits import BODY_BYTES_MAX
from replica.log import FinishReason, Genesis, Usage

PROGRESS_EVERY_S = 0.1
_ID_BYTES_MAX = 5
"""Most bytes of a token id as a varint."""
_OTHER_BYTES_MAX = 4096
"""Most bytes of a generation's body without its ids and text, plus one more token's text."""


class RunDriver:
    """Computes a run; `usage` has its counts, also after a failure."""

    def __init__(
        self,
        worker: Worker,
        held: Conversation,
        run: Run,
        journal: Journal,
        show: Callable[[Draft], None],
    ) -> None:
        """Compute through `worker`; call `show` with each frame once it may be sent."""
        self.run = run
        self.usage = Usage()
        self._worker = worker
        self._held = held
        self._journal = journal
        self._show = show
        self._cancellation = Cancellation()
        self._progress_shown_at = 0.0
        self.check_cancelled()

    def check_cancelled(self) -> None:
        """Let the run end before its next step if the log has a CANCEL of its request.

        Call it whenever entries were admitted.
        """
        if self._held.order.is_cancelled(self.run.plan.request_id):
            self._cancellation.set()

    async def finish(self, journaled: Sequence[int]) -> None:
        """Replay the journaled tokens, then compute the rest until the run has finished.

        Raises StoreError if the journal can't be written.
        """
        for token_id in journaled:
            self.run.add_token(token_id)
        for frame in self.run.drafts:
            self._show(frame)
        # The host may have crashed between the last token and the generation's entry.
        if self.run.finished is None:
            async with self._worker.holding(self._held.id) as hold:
                await self._compute(hold)

    async def _compute(self, hold: Hold) -> None:
        began, already = time.monotonic(), len(self.run.token_ids)
        first_token = began
        try:
            logits = await self._prefill(hold)
            while self._goes_on():
                token_id = self._choose_next(logits)
                if len(self.run.token_ids) == already + 1:
                    first_token = time.monotonic()
                if self.run.finished is None:
                    logits = await self._worker.decode(hold, token_id)
        except PrefillCancelled:
            self.run.end(FinishReason.CANCELLED, "cancelled by a member")
        except HostError as error:
            self.run.end(FinishReason.INTERRUPTED, finish_detail(error))
        self.usage = replace(
            self.usage,
            first_token_us=int((first_token - began) * 1e6),
            decode_us=int((time.monotonic() - first_token) * 1e6),
        )

    def _goes_on(self) -> bool:
        """Say whether there is a next token; end the run at a CANCEL or a limit."""
        run = self.run
        if run.finished is None and self._cancellation.is_set:
            run.end(FinishReason.CANCELLED, "cancelled by a member")
        text = len(run.visible) + run.text.hidden_bytes
        size = len(run.token_ids) * _ID_BYTES_MAX + text + _OTHER_BYTES_MAX
        if run.finished is None and size > BODY_BYTES_MAX:
            run.end(FinishReason.LENGTH, "no entry holds more")
        return run.finished is None

    def _choose_next(self, logits: Logits) -> int:
        token_id = self.run.choose(logits)
        self._journal.append(token_id)
        self.run.add_token(token_id)
        self._show(self.run.drafts[-1])
        return token_id

    # --- the context ------------------------------------------------------------

    async def _prefill(self, hold: Hold) -> Logits:
        """Bring the context into memory, and send the progress to readers."""
        run, loop = self.run, asyncio.get_running_loop()

        def on_progress(found: Found, done: int) -> None:  # in the worker's thread
            loop.call_soon_threadsafe(self._show_progress, found, done)

        prefilled = await self._worker.prefill(
            hold,
            owner_of(self._held),
            [*run.plan.prompt, *run.token_ids],
            on_progress=on_progress,
            cancellation=self._cancellation,
        )
        # Tokens of the answer itself, restored after a crash, are not part of the prompt.
        prompt = len(run.plan.prompt)
        cached = min(prefilled.found.cached_tokens, prompt)
        restored = min(prefilled.found.restored_tokens, prompt - cached)
        self.usage = Usage(
            prompt_tokens=prompt,
            cached_tokens=cached,
            restored_tokens=restored,
            prefilled_tokens=prompt - cached - restored,
        )
        return prefilled.logits

    def _show_progress(self, found: Found, prefilled: int) -> None:
        """Send the progress of the prompt to readers, at most every PROGRESS_EVERY_S."""
        now = time.monotonic()
        if now - self._progress_shown_at >= PROGRESS_EVERY_S and not self.run.token_ids:
            self._progress_shown_at = now
            usage = Usage(cached_tokens=found.cached_tokens, restored_tokens=found.restored_tokens)
            self._show(self.run.progress(usage, prefilled))


def owner_of(held: Conversation) -> bytes:
    """Return the owner whose salt the conversation's derived state has: the first of genesis."""
    genesis = held.log.body(EntryId(held.id))
    assert isinstance(genesis, Genesis), "a followed conversation has its genesis"
    return genesis.owners[0]
