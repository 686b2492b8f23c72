"""The engine behind one thread: contexts in memory, restored or computed (spec/07-host §5).

All calls of torch run in this thread, one at a time, and so does sampling, which would hold
up the event loop. A context is looked up in
memory, then on disk, and the rest is computed from the tokens. The output is
the same in each case.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from model_host.engine_api import Engine, Logits, Slice
from model_host.errors import CheckpointError, CheckpointMissing
from model_host.kv import GROUP_TOKENS, CachePool, Hold, KVCache, Manifest, PageStore
from model_host.prefill import Cancellation, prefill
from model_host.sampler import Sampler
from model_host.sampler_state import Choice, SamplerState
from replica.ids import ConversationId, EntryId, short

log = structlog.get_logger()


@dataclass(slots=True)
class Counters:
    """Counts of events of derived state since start."""

    restores: int = 0
    fallbacks: int = 0
    checkpoints: int = 0
    checkpoint_failures: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """The part of a context that was found, in tokens."""

    cached_tokens: int
    restored_tokens: int


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A context ready to continue: logits after its last token, and the part that was found."""

    logits: Logits
    found: Found


OnProgress = Callable[[Found, int], None]
"""Called in the worker's thread with the part found and the number of tokens computed."""


class Worker:
    """One engine, its caches and its checkpoints, in a thread of their own."""

    def __init__(
        self,
        engine: Engine,
        pool: CachePool,
        pages: PageStore,
        salt_of: Callable[[bytes], bytes],
    ) -> None:
        """`salt_of` turns an owner's key into the salt of its derived state."""
        self.engine = engine
        self.counters = Counters()
        self._pool = pool
        self._pages = pages
        self._salt_of = salt_of
        self._sampler = Sampler()
        self._stopping = Cancellation()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")

    async def _call(self, work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def stop(self) -> None:
        """Let a running prefill end between two steps, as if cancelled; `close` comes next."""
        self._stopping.set()

    async def close(self) -> None:
        """Finish the running call, then end the thread."""
        self.stop()
        await asyncio.to_thread(self._thread.shutdown)

    @asynccontextmanager
    async def holding(self, conversation: ConversationId) -> AsyncIterator[Hold]:
        """Keep a conversation in memory for the block: `evict` raises CacheBusy meanwhile."""
        pin = ExitStack()
        try:
            yield await self._call(pin.enter_context, self._pool.hold(conversation))
        finally:
            if not self._stopping.is_set:  # else all memory is freed with the thread
                await self._call(pin.close)

    async def prefill(
        self,
        hold: Hold,
        owner: bytes,
        ids: Sequence[int],
        *,
        on_progress: OnProgress,
        cancellation: Cancellation,
    ) -> Prefilled:
        """Bring the context `ids` into memory, for `hold`; return the logits after the last.

        Raises PrefillCancelled, ContextTooLong, CacheBudgetExceeded, CacheBusy.
        """
        prefilled: Prefilled = await self._call(
            self._prefill, hold, owner, list(ids), on_progress, cancellation
        )
        return prefilled

    def _prefill(
        self,
        hold: Hold,
        owner: bytes,
        ids: list[int],
        on_progress: OnProgress,
        cancellation: Cancellation,
    ) -> Prefilled:
        cache = self._pool.choose(hold, ids).cache
        restored = self._restore(hold.conversation, owner, ids, cache)
        start = cache.tokens
        found = Found(start - restored, restored)
        on_progress(found, 0)
        logits = prefill(
            self.engine,
            cache,
            ids[start:],
            cancellations=(self._stopping, cancellation),
            on_progress=partial(on_progress, found),
        )
        return Prefilled(logits, found)

    def _restore(self, conversation: bytes, owner: bytes, ids: list[int], cache: KVCache) -> int:
        """Restore a checkpoint that reaches further than memory; return the tokens it added.

        A failure is counted and never raised: the tokens are computed instead.
        """
        namespace = self.engine.namespace(self._salt_of(owner)).digest
        # Whole groups are restored, so an incomplete group in memory is read again.
        kept = cache.tokens // GROUP_TOKENS * GROUP_TOKENS
        try:
            tokens = self._pages.restore(conversation, namespace, ids, cache, cache.tokens)
        except CheckpointMissing:
            return 0
        except CheckpointError as error:
            self.counters.fallbacks += 1
            log.warning("checkpoint not used", reason=error.reason, detail=error.detail)
            return 0
        self.counters.restores += 1
        return tokens - kept

    async def decode(self, hold: Hold, token_id: int) -> Logits:
        """Append one token to the context of `hold`; return the logits after it."""
        logits: Logits = await self._call(self._decode, hold, token_id)
        return logits

    def _decode(self, hold: Hold, token_id: int) -> Logits:
        assert hold.context is not None, "a context is prefilled first"
        hold.context.expect((token_id,))
        (logits,) = self.engine.step([Slice(hold.context.cache, (token_id,))])
        last: Logits = logits[-1]
        return last

    async def choose(self, logits: Logits, state: SamplerState) -> Choice:
        """Choose a token from logits [V]. Raises LogitsInvalid."""
        choice: Choice = await self._call(self._sampler.choose, logits, state)
        return choice

    async def checkpoint(
        self,
        conversation: ConversationId,
        owner: bytes,
        seal: EntryId,
        generation: EntryId,
        ids: Sequence[int],
    ) -> None:
        """Write the part of `ids` in memory to disk; a failure is counted and logged."""
        await self._call(self._checkpoint, conversation, owner, seal, generation, list(ids))

    def _checkpoint(
        self,
        conversation: ConversationId,
        owner: bytes,
        seal: EntryId,
        generation: EntryId,
        ids: list[int],
    ) -> None:
        namespace = self.engine.namespace(self._salt_of(owner)).digest
        context, tokens = self._pool.closest(conversation, ids)
        if context is None or not tokens:
            return
        try:
            self._pages.save(conversation, namespace, seal, generation, ids[:tokens], context.cache)
        except CheckpointError as error:
            self.counters.checkpoint_failures += 1
            log.warning("checkpoint not written", reason=error.reason, detail=error.detail)
            return
        self.counters.checkpoints += 1
        log.info("checkpoint", conversation=short(conversation), tokens=tokens)

    async def evict(self, conversation: ConversationId, *, checkpoints: bool) -> tuple[int, int]:
        """Drop a conversation from memory, and from disk if asked; return (tokens, checkpoints).

        Raises CacheBusy while it is being answered; nothing is dropped then.
        """
        dropped: tuple[int, int] = await self._call(self._evict, conversation, checkpoints)
        return dropped

    def _evict(self, conversation: ConversationId, checkpoints: bool) -> tuple[int, int]:
        tokens = self._pool.drop(conversation)
        count = 0
        if checkpoints:
            count = len(self._pages.manifests(conversation))
            self._pages.delete(conversation)
        return tokens, count

    async def checkpoints(self, conversation: ConversationId) -> list[Manifest]:
        """Return the checkpoints held of a conversation, newest first."""
        held: list[Manifest] = await self._call(self._pages.manifests, conversation)
        return held
