"""HostService.CountTokens: the tokens of a text and of a context (spec/07-host §6)."""

from collections.abc import Callable
from functools import partial

from antiphon.v1 import host_pb2 as pb
from model_host.generation import Branch, gather_at, render_branch
from model_host.io.calls.callers import Callers, Places, check_member, entry_of, offer_of
from model_host.io.contexts import Rendering
from model_host.io.profiles import Offer, Offers
from model_host.refusals import TokenizerBytesMissing
from replica.io import rpc
from replica.limits import BODY_BYTES_MAX, COUNTS_MAX
from replica.refusals import ArgumentInvalid


class CountTokens:
    """The call."""

    def __init__(self, callers: Callers, offers: Offers, rendering: Rendering) -> None:
        """Count in turn with other `rendering`."""
        self._callers = callers
        self._offers = offers
        self._rendering = rendering
        self._places = Places(COUNTS_MAX)

    async def __call__(
        self, request: pb.CountTokensRequest, context: rpc.Context
    ) -> pb.CountTokensResponse:
        """Count for a member.

        Raises ArgumentInvalid, ProfileUnknown, BodyUnavailable, ContextTooLong or RateLimited.
        """
        held, peer = await self._callers.member(request.conversation, context)
        offer = offer_of(self._offers, request.profile)
        if len(request.text.encode()) > BODY_BYTES_MAX:
            raise ArgumentInvalid(f"text: at most {BODY_BYTES_MAX} bytes")
        with self._places.one(peer):
            context_tokens = 0
            if request.at:
                at = entry_of(request.at)

                def read() -> Callable[[], tuple[int, ...]]:
                    check_member(held, peer)  # it waited for its turn
                    return partial(rendered_ids, gather_at(held, at, offer.contexts), offer)

                context_tokens = len(await self._rendering.read(read, peer))
            tokens = await self._rendering.run(partial(_count, offer, request.text), peer)
        return pb.CountTokensResponse(
            tokens=tokens,
            context_tokens=context_tokens,
            context_tokens_max=offer.profile.context_tokens_max,
        )


def rendered_ids(branch: Branch, offer: Offer) -> tuple[int, ...]:
    """Return the tokens of a gathered context. Raises GenerationRefused."""
    return render_branch(branch, offer.renderer, offer.room).context.ids


def _count(offer: Offer, text: str) -> int:
    """Return the number of tokens of a text. Raises ArgumentInvalid."""
    try:
        return len(offer.tokenizer.encode(text))
    except TokenizerBytesMissing as error:
        raise ArgumentInvalid(f"text: {error.detail}") from error
