"""HostService.Warm: the keys and values of a context, and no answer (spec/07-host §6, HOST-71)."""

from collections.abc import Callable, Sequence
from functools import partial

from antiphon.v1 import host_pb2 as pb
from model_host.batching import Warmed
from model_host.generation import gather_at
from model_host.io.calls.callers import Callers, Places, check_asker, entry_of, offer_of
from model_host.io.calls.count_tokens import rendered_ids
from model_host.io.contexts import HubCheckpoints, Rendering
from model_host.io.profiles import Offer, Profiles
from model_host.kv import Losses
from replica.conversation import Conversation
from replica.ids import PublicKey
from replica.io import rpc
from replica.limits import KEEP_S_MAX, WARMS_MAX
from replica.refusals import ArgumentInvalid


class Warm:
    """The call."""

    def __init__(
        self,
        callers: Callers,
        profiles: Profiles,
        rendering: Rendering,
        hub_tier: HubCheckpoints,
    ) -> None:
        """Compute with `profiles` what `rendering` rendered, and restore from `hub_tier`."""
        self._callers = callers
        self._profiles = profiles
        self._rendering = rendering
        self._hub_tier = hub_tier
        self._places = Places(WARMS_MAX)

    async def __call__(self, request: pb.WarmRequest, context: rpc.Context) -> pb.WarmResponse:
        """Restore or compute for a member who may write requests, until done or cancelled.

        The caller's role is checked before each chunk. CacheBusy ends it too where others take
        the memory again and again. Raises NotAllowed, ProfileUnknown,
        ContextTooLong, CacheBudgetExceeded, CacheBusy or RateLimited.
        """
        if request.keep_s > KEEP_S_MAX:
            raise ArgumentInvalid(f"keep_s: at most {KEEP_S_MAX} seconds")
        held, peer = await self._callers.member(request.conversation, context)
        check_asker(held, peer)
        offer = offer_of(self._profiles.offers, request.profile)
        with self._places.one(peer):
            at = entry_of(request.at)

            def read() -> Callable[[], tuple[int, ...]]:
                check_asker(held, peer)  # it waited for its turn
                return partial(rendered_ids, gather_at(held, at, offer.contexts), offer)

            ids = await self._rendering.read(read, peer)
            offer.room.check(len(ids), is_all=True)
            first, last = await self._warm(held, peer, offer, ids, request.keep_s)
        return pb.WarmResponse(
            context_tokens=len(ids),
            cached_tokens=first.own_tokens,
            restored_tokens=first.restored_tokens,
            kept_tokens=last.kept_tokens,
        )

    async def _warm(
        self, held: Conversation, peer: PublicKey, offer: Offer, ids: Sequence[int], keep_s: int
    ) -> tuple[Warmed, Warmed]:
        """Compute a context; return the state behind its first chunk, and the last."""
        first: Warmed | None = None
        last, losses = Warmed(0, 0), Losses()
        while last.tokens < len(ids):
            async with self._profiles.using(offer) as loaded:
                await self._hub_tier.fetch(held, loaded, (*ids, 0))
                has_begun = False
                while last.tokens < len(ids) and not self._profiles.awaits_other(offer):
                    check_asker(held, peer)
                    # The readers, and with them the domain, may change between two chunks.
                    domain = loaded.namespaces.pages(held)
                    stored = None if has_begun else loaded.namespaces.stored(held)
                    before = last.tokens
                    last = await loaded.thread.warm(ids, domain, held.id, stored, keep_s=keep_s)
                    first, has_begun = first or last, True
                    if last.tokens <= before:
                        losses.note()
        return first or last, last
