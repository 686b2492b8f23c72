"""The driver of one run, from its context to its last token (spec/07-host §4 steps 4 to 8).

The engine's thread chooses the tokens (model_host/batching/batcher.py). Here they are journaled,
framed and shown as they come, and those of a resumed run one by one.
model_host/io/answers/request_handler.py writes the entries in the log.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from model_host.batching import Chosen, Computed, Event, Found, Job, RunView
from model_host.generation import DraftFrames, Run
from model_host.io.answers.run_table import RunTable
from model_host.io.files import Journal
from model_host.io.threads import EngineThread
from model_host.sampling import Choice
from replica.conversation import Conversation, Draft
from replica.ids import ConversationId, EntryId
from replica.log import FinishReason, Usage

PROGRESS_EVERY_S = 0.1
REPLAYED_PER_TURN = 32
"""Journaled tokens that are framed and signed in one turn of the event loop: some 5 ms."""


class RunDriver:
    """Computes a run and shows it; `usage` has its counts, also after a failure."""

    def __init__(
        self,
        thread: EngineThread,
        held: Conversation,
        run: Run,
        journal: Journal,
        runs: RunTable,
    ) -> None:
        """Compute in `thread`; `runs` signs each frame, and sends it once it may."""
        plan = run.plan
        self.run = run
        self.usage = Usage()
        self.frames = DraftFrames(plan.conversation, plan.request_id, run.run, runs.sign)
        self._thread = thread
        self._held = held
        self._journal = journal
        self._show = runs.show
        self._job: Job | None = None
        self._interruption = ""
        self._rows_done = self._shared_tokens = 0
        self._progress_shown_at = 0.0
        self._began = time.monotonic()
        self._first_token: float | None = None
        self._is_resumed = self._has_journaled = False

    @property
    def conversation(self) -> ConversationId:
        """The conversation of the request that it answers."""
        return self.run.plan.conversation

    @property
    def request(self) -> EntryId:
        """The request that it answers."""
        return self.run.plan.request_id

    @property
    def seal(self) -> EntryId:
        """The seal of its context."""
        return self.run.seal_id

    @property
    def view(self) -> RunView:
        """Its progress; the tokens of others' pages are not in it (PAGE-8)."""
        prompt = len(self.run.plan.prompt)
        found = self.usage.cached_tokens + self.usage.restored_tokens
        first = self._first_token
        return RunView(
            self.conversation,
            self.request,
            prompt_tokens=prompt,
            found_tokens=found,
            computed_tokens=prompt - found if self.run.token_ids else self._prefilled_tokens,
            output_tokens=len(self.run.token_ids),
            age_s=time.monotonic() - self._began,
            first_token_s=first - self._began if first is not None else None,
        )

    @property
    def shown(self) -> Sequence[Draft]:
        """Its frames so far, signed."""
        return self.frames.frames

    def check_cancelled(self) -> None:
        """Let the run end before its next step if the log has a CANCEL of its request.

        Call it whenever entries were admitted.
        """
        if self._job is not None and self._held.order.is_cancelled(self.request):
            self._job.cancel()

    def interrupt(self, detail: str) -> None:
        """Let the run end before its next step: its hub takes nothing of it any more."""
        self._interruption = detail
        if self._job is not None:
            self._job.cancel(FinishReason.INTERRUPTED, detail)

    async def finish(
        self, journaled: Sequence[Choice] | None, *, owner: bytes, domain: bytes, namespace: bytes
    ) -> None:
        """Replay the journaled tokens, then compute the rest until the run has finished.

        `journaled` is None for a run that does not resume. The keyword arguments are those of
        the job. Raises StoreError if the journal can't be written, and HostError if the engine
        stops.
        """
        self._is_resumed, self._has_journaled = journaled is not None, bool(journaled)
        for number, choice in enumerate(journaled or (), 1):
            self.frames.add(choice, self.run.add_token(choice.token_id, choice.logprobs))
            self._show(self.frames.take())
            if number % REPLAYED_PER_TURN == 0:
                await asyncio.sleep(0)
        # The host may have crashed between the last token and the generation's entry.
        if self.run.finished is not None:
            return
        self._job = Job(self.run, self.conversation, owner, domain, namespace)
        self.check_cancelled()
        if self._interruption:
            self.interrupt(self._interruption)
        await self._thread.compute(self._job, self._receive)
        self._note_times()

    def _receive(self, events: Sequence[Event]) -> None:
        """Show what came. Raises StoreError."""
        for event in events:
            self._receive_one(event)
        self._flush()

    def _receive_one(self, event: Event) -> None:
        match event:
            case Found():
                self._note_found(event)
                self._show_progress()
            case Computed(tokens):
                self._rows_done += tokens
                self._show_progress()
            case Chosen(choice, shown):
                self._first_token = self._first_token or time.monotonic()
                self.frames.add(choice, shown)
                if self._is_resumed:
                    # A power loss may have taken tokens that a reader has: one of its frames
                    # ends where his draft ends (HOST-15).
                    self._flush()

    # --- frames -----------------------------------------------------------------------

    def _flush(self) -> None:
        """Journal the tokens gathered, then show them (HOST-15). Raises StoreError."""
        if self.frames.gathered:
            self._journal.append(self.frames.gathered)
            self._show(self.frames.take())

    def _show_progress(self) -> None:
        """Send the progress of the prompt to readers, at most every PROGRESS_EVERY_S."""
        now = time.monotonic()
        if now - self._progress_shown_at >= PROGRESS_EVERY_S and not self.run.token_ids:
            self._progress_shown_at = now
            prompt_tokens = len(self.run.plan.prompt)
            self._show(self.frames.progress(prompt_tokens, self.usage, self._prefilled_tokens))

    # --- counts -----------------------------------------------------------------------

    @property
    def _prefilled_tokens(self) -> int:
        """The tokens of the prompt prefilled so far, as its readers are told.

        Those found in others' pages are a share of each row, so that their number does not
        show (PAGE-8). Rows that a run computes again, since it was preempted, count once.
        """
        left = len(self.run.plan.prompt) - self.usage.cached_tokens - self.usage.restored_tokens
        rows = max(1, left - self._shared_tokens)
        return left * min(self._rows_done, rows) // rows

    def _note_found(self, found: Found) -> None:
        # Tokens of the answer itself, restored after a crash, are not part of the prompt.
        prompt = len(self.run.plan.prompt)
        cached = min(found.cached_tokens, prompt)
        restored = min(found.restored_tokens, prompt - cached)
        self.usage = Usage(cached_tokens=cached, restored_tokens=restored)
        self._shared_tokens = found.shared_tokens

    def _note_times(self) -> None:
        """Complete the usage; a run without a token, cut short before it, counts none."""
        if self._first_token is None:
            self.usage = Usage()
            return
        prompt, found = len(self.run.plan.prompt), self.usage
        self.usage = replace(
            found,
            prompt_tokens=prompt,
            prefilled_tokens=prompt - found.cached_tokens - found.restored_tokens,
        )
        if self._has_journaled:
            return  # the tokens before the crash were counted by no clock that is left
        self.usage = replace(
            self.usage,
            first_token_us=int((self._first_token - self._began) * 1e6),
            decode_us=int((time.monotonic() - self._first_token) * 1e6),
        )
