"""The loaded profiles of a host: an engine, its pages and its thread each (spec/07-host §1).

model_host/profiles/residency.py decides what is loaded. All engines compute in turn: with two at
once, the threads of each would wait for a core that the other has (DECISIONS D182).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import ParamSpec, TypeVar

import structlog

from model_host.batching import SEQUENCES_MAX, Batcher
from model_host.engine import ModelFile
from model_host.engine_api import Engine
from model_host.io.profiles.namespaces import Namespaces
from model_host.io.profiles.offers import Offer, Offers, reopen
from model_host.io.threads import (
    EngineCounts,
    EngineThread,
    Turns,
    delete_checkpoints,
    in_own_thread,
)
from model_host.kv import Manifest, PagePool, PageStore
from model_host.profiles import Residency
from model_host.refusals import ProfileUnavailable
from replica.errors import AntiphonError, HostError
from replica.ids import Digest
from replica.io import look_at

log = structlog.get_logger()

P = ParamSpec("P")
Result = TypeVar("Result")
LoadEngine = Callable[[Offer, ModelFile], Engine]
"""Load the engine of an offer from its model, in a thread of its own. Raises AntiphonError."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A profile that can compute."""

    offer: Offer
    thread: EngineThread
    namespaces: Namespaces

    @property
    def numerics_class(self) -> Digest:
        """The digest of its canary."""
        return Digest(self.thread.engine.numerics_class)


class Profiles:
    """Loads profiles on demand, and unloads idle ones when others need their memory."""

    def __init__(
        self,
        offers: Offers,
        load_engine: LoadEngine,
        pages: PageStore,
        *,
        salt_key: bytes,
        kv_bytes: int,
        memory_bytes: int,
    ) -> None:
        """Offer these; each may use `kv_bytes` of KV memory, and all together `memory_bytes`."""
        self.offers = offers
        self._load_engine = load_engine
        self.pages = pages
        self._salt_key = salt_key
        self._kv_bytes = kv_bytes
        need = {offer.profile.digest: offer.weights_bytes + kv_bytes for offer in offers.all}
        self._residency = Residency(need, memory_bytes)
        self._loaded: dict[Digest, Loaded] = {}
        self._namespaces: dict[Digest, Namespaces] = {}
        self._threads: list[EngineThread] = []  # of the loaded ones, and of those that end
        self._watching: dict[Digest, asyncio.Task[None]] = {}
        self._first = asyncio.Lock()  # of those that wait for a profile that is not loaded
        self._load: asyncio.Task[None] | None = None
        """The last load. It goes on if its caller is cancelled, and no other begins meanwhile."""
        self._released = asyncio.Event()
        self._turns = Turns()
        self._ended_counts = EngineCounts()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def loaded(self, offer: Offer) -> Loaded | None:
        """Return a profile that is loaded now."""
        return self._loaded.get(offer.profile.digest)

    def namespaces(self, offer: Offer) -> Namespaces | None:
        """Return the namespaces of a profile, None if it has not been loaded yet."""
        return self._namespaces.get(offer.profile.digest)

    def awaits_other(self, offer: Offer) -> bool:
        """Say whether a request waits for the memory of this profile, which another one needs.

        Work that no answer waits for then ends its use, and goes on with a new one behind it.
        """
        return self._residency.wanted not in (None, offer.profile.digest)

    @property
    def counts(self) -> EngineCounts:
        """Counts since start, those of unloaded profiles included; they may be a step old."""
        running = (thread.counts for thread in self._threads)
        return reduce(EngineCounts.plus, running, self._ended_counts)

    # --- life -------------------------------------------------------------------------

    async def failed(self) -> None:
        """Raise the error that ended the thread of a profile; wait for ever if all run."""
        await asyncio.shield(self._failure)

    def stop(self) -> None:
        """End all threads after their present step; jobs in progress stay unfinished."""
        for thread in self._threads:
            thread.stop()

    async def close(self) -> None:
        """Stop, and wait for the end of all threads; a profile being loaded is dropped."""
        if self._load is not None:
            self._load.cancel()
            await asyncio.wait([self._load])
        for thread in self._threads:
            await thread.close()
        for task in self._watching.values():
            task.cancel()
        await asyncio.gather(*self._watching.values(), return_exceptions=True)

    # --- use --------------------------------------------------------------------------

    @asynccontextmanager
    async def using(self, offer: Offer) -> AsyncIterator[Loaded]:
        """Load a profile if needed, and keep it loaded for the block.

        Waits while others have the memory and running work. Raises ProfileUnavailable, or
        ProfileTooLarge.
        """
        digest = offer.profile.digest
        if not self._residency.use(digest):
            async with self._first:
                await self._use_loading(offer)
        try:
            yield self._loaded[digest]
        finally:
            self._residency.release(digest)
            self._released.set()

    async def _use_loading(self, offer: Offer) -> None:
        digest, model = offer.profile.digest, None
        try:
            while not self._residency.use(digest):
                if self._load is not None and not self._load.done():
                    # Its caller has gone. No count has its memory, so nothing is loaded beside it.
                    await asyncio.wait([self._load])
                    continue
                if model is None:
                    # Before others make room: none is unloaded for a model that is gone.
                    model = await self._in_thread(offer, reopen, offer)
                    continue
                self._released.clear()
                unloaded = self._residency.room_for(digest)
                if unloaded is None:
                    await self._released.wait()
                    continue
                # All at once: none of them comes into use while another one ends.
                ending = [self._remove(each) for each in unloaded]
                self._load = asyncio.create_task(self._load_instead(ending, offer, model))
                self._load.add_done_callback(look_at)
                await asyncio.shield(self._load)
        finally:
            self._residency.give_up()

    async def _load_instead(
        self, ending: list[EngineThread], offer: Offer, model: ModelFile
    ) -> None:
        """Load a profile in place of others, whose threads end first."""
        await asyncio.gather(*map(self._close, ending))
        name = self.offers.name_of(offer)
        log.info("loading profile", model=name, numerics=offer.profile.numerics)
        self.add(offer, await self._in_thread(offer, self._load_engine, offer, model))

    async def _in_thread(
        self, offer: Offer, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs
    ) -> Result:
        """Do a part of loading a profile in a thread of its own. Raises ProfileUnavailable."""
        name = self.offers.name_of(offer)
        try:
            return await in_own_thread(work, *args, **kwargs)
        except ProfileUnavailable:
            raise
        except AntiphonError as error:
            # The detail names files of this machine; the refusal is signed into the log.
            log.warning(
                "profile not loaded",
                model=name,
                reason=error.reason,
                detail=error.detail,
                next_step=error.next_step,
            )
            raise ProfileUnavailable(f"{name}: {error.reason}") from error
        except Exception as error:  # of torch, for want of memory; logged
            log.exception("loading failed")
            raise ProfileUnavailable(f"{name}: the engine failed while it was loaded") from error

    def add(self, offer: Offer, engine: Engine) -> None:
        """Start the thread of an engine that is loaded. Raises ProfileTooLarge."""
        digest = offer.profile.digest
        self._residency.room_for(digest)
        pool = PagePool(engine.memory, tail_slots=SEQUENCES_MAX, budget_bytes=self._kv_bytes)
        thread = EngineThread(engine, pool, self.pages, turns=self._turns)
        self._namespaces[digest] = Namespaces(engine, self._salt_key)
        self._threads.append(thread)
        self._loaded[digest] = Loaded(offer, thread, self._namespaces[digest])
        self._residency.add(digest)
        thread.start()
        self._watching[digest] = asyncio.create_task(self._watch(thread), name="profile")

    def _remove(self, digest: Digest) -> EngineThread:
        """Unload a profile; return its thread, which has yet to be closed."""
        self._residency.remove(digest)
        loaded = self._loaded.pop(digest)
        self._watching.pop(digest).cancel()
        log.info("unloading profile", model=self.offers.name_of(loaded.offer))
        return loaded.thread

    async def _close(self, thread: EngineThread) -> None:
        """Wait for the end of a thread, whose checkpoints are written first."""
        await thread.close()
        self._threads.remove(thread)
        self._ended_counts = self._ended_counts.plus(thread.counts)

    async def _watch(self, thread: EngineThread) -> None:
        try:
            await thread.failed()
        except Exception as error:  # noqa: BLE001  # raised by `failed`
            if not self._failure.done():
                self._failure.set_exception(error)

    # --- derived state ----------------------------------------------------------------

    async def look(
        self, offer: Offer, work: Callable[[Batcher, PagePool, PageStore], Result]
    ) -> Result | None:
        """Return what `work` finds between two steps of a profile; None if it is not loaded.

        That is no use of the profile. Raises HostError if its engine has stopped.
        """
        loaded = self.loaded(offer)
        if loaded is None:
            return None
        try:
            return await loaded.thread.look(work)
        except HostError:
            if self.loaded(offer) is loaded:
                raise
            return None  # unloaded meanwhile

    async def manifests(self, conversation: bytes) -> list[Manifest]:
        """Return the checkpoints held of a conversation, newest first."""
        return await self._stored(partial(self.pages.manifests, conversation))

    async def evict(self, conversation: bytes, *, checkpoints: bool) -> tuple[int, int]:
        """Drop a conversation from memory, and from disk if asked; return (tokens, checkpoints).

        Raises CacheBusy while it is being answered.
        """

        def drop(_batcher: Batcher, pool: PagePool, _pages: PageStore) -> int:
            return pool.cached.evict(conversation)

        tokens = [await self.look(offer, drop) or 0 for offer in self.offers.all]
        count = (
            await self._stored(partial(delete_checkpoints, self.pages, conversation))
            if checkpoints
            else 0
        )
        return sum(tokens), count

    async def _stored(self, work: Callable[[], Result]) -> Result:
        """Perform a call on the store, after all checkpoints asked for so far are written."""
        for thread in [*self._threads]:
            try:
                await thread.stored(lambda: None)
            except HostError:  # it ends, and writes first
                await thread.close()
        return await asyncio.to_thread(work)
