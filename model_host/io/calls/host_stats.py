"""The measures of a running host, for its endpoint and for Stats (spec/07-host §6)."""

import asyncio
from dataclasses import asdict, dataclass, replace
from functools import partial

from model_host.batching import Batcher, EngineState, Tier, measures
from model_host.io.answers import Host
from model_host.io.config import HostConfig
from model_host.io.contexts import HubCheckpoints
from model_host.io.profiles import Loaded, Profiles
from model_host.kv import PagePool, PageStore
from model_host.operators import Operators
from replica.measures import Measure


@dataclass(frozen=True, slots=True)
class _Seen:
    """An engine between two steps."""

    memory_bytes: int
    memory_tokens: int
    sequences: int
    """Sequences of the present step; 0 while nothing is computed."""


class HostStats:
    """Reads the counts of a host: those of its engines are sums over all profiles."""

    def __init__(
        self,
        host: Host,
        profiles: Profiles,
        hub_tier: HubCheckpoints,
        operators: Operators,
        config: HostConfig,
    ) -> None:
        """Read these, which use at most the memory, disk and space at the hub of `config`."""
        self.operators = operators
        self._host = host
        self._profiles = profiles
        self._hub_tier = hub_tier
        self._config = config

    async def measures(self, *, for_operator: bool = True) -> list[Measure]:
        """Return the measures of this moment. Raises HostError if an engine has stopped."""
        loaded = filter(None, map(self._profiles.loaded, self._profiles.offers.all))
        looks = await asyncio.gather(*map(self._look, loaded))
        seen = [one for one in looks if one is not None]
        return measures(
            self._state(seen),
            self._host.counters,
            running=self._host.running,
            waiting=self._host.waiting,
            conversations=self._host.conversations,
            unstored=self._host.unstored,
            limits=(
                ("memory", self._config.kv_bytes_max * len(seen)),
                ("disk", self._config.checkpoint_bytes_max),
                ("hub", self._config.hub_checkpoint_bytes_max),
            ),
            for_operator=for_operator,
        )

    async def _look(self, loaded: Loaded) -> _Seen | None:
        """Look at a profile between two steps; None if it is unloaded meanwhile."""
        token_bytes = loaded.thread.engine.memory.bytes_per_token
        return await self._profiles.look(loaded.offer, partial(_see, token_bytes))

    def _state(self, seen: list[_Seen]) -> EngineState:
        counts, pages = self._profiles.counts, self._profiles.pages
        disk = pages.counters
        memory, tokens = sum(s.memory_bytes for s in seen), sum(s.memory_tokens for s in seen)
        return EngineState(
            batch=replace(counts.batch, sequences=sum(s.sequences for s in seen)),
            pool=counts.pool,
            tiers=(
                Tier("memory", memory, counts.pool.evictions, tokens),
                Tier("disk", pages.nbytes, disk.evicted_conversations),
                *self._hub_tiers(),
            ),
            checkpoints=counts.writes.written,
            checkpoint_failures=counts.writes.failed,
            corrupt=disk.corrupt,
            archives=asdict(self._hub_tier.counters),
            is_idle=not any(s.sequences for s in seen),
        )

    def _hub_tiers(self) -> tuple[Tier, ...]:
        if not self._config.hub_checkpoint_bytes_max:
            return ()
        return (Tier("hub", self._hub_tier.nbytes, self._hub_tier.counters.removed),)


def _see(token_bytes: int, batcher: Batcher, pool: PagePool, _pages: PageStore) -> _Seen:
    sequences = 0 if batcher.is_idle else batcher.counters.sequences
    return _Seen(pool.used_bytes, pool.used_bytes // token_bytes, sequences)
