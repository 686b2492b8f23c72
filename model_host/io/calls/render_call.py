"""HostService.Render: the tokens of a sealed context, entry by entry (spec/07-host §6)."""

from collections.abc import Callable
from functools import partial

from antiphon.v1 import host_pb2 as pb
from model_host.generation import gather_branch, render_branch
from model_host.io.calls.callers import Callers, Places, check_member
from model_host.io.contexts import Rendering
from model_host.io.profiles import Offers
from model_host.rendering import Contexts, Rendered
from replica.ids import EntryId
from replica.io import rpc
from replica.limits import RENDERS_MAX
from replica.refusals import ArgumentInvalid


class RenderCall:
    """The call."""

    def __init__(self, callers: Callers, offers: Offers, rendering: Rendering) -> None:
        """Render in turn with other `rendering`."""
        self._callers = callers
        self._offers = offers
        self._rendering = rendering
        self._places = Places(RENDERS_MAX)

    async def __call__(self, request: pb.RenderRequest, context: rpc.Context) -> pb.RenderResponse:
        """Render for a member.

        Raises ArgumentInvalid, BodyUnavailable, ContextTooLong or RateLimited.
        """
        held, peer = await self._callers.member(request.conversation, context)

        def read() -> Callable[[], Rendered]:
            check_member(held, peer)  # it waited for its turn
            node = held.order.nodes.get(EntryId(request.seal))
            if node is None:
                raise ArgumentInvalid("seal: no seal that counts has this id")
            offer = self._offers.of_seal(node)
            branch = gather_branch(held, node, Contexts(0))  # from scratch: each entry is rendered
            return partial(render_branch, branch, offer.renderer, offer.room)

        with self._places.one(peer):
            rendered = await self._rendering.read(read, peer)
        entries = [pb.RenderedEntry(entry=i, token_ids=ids) for i, ids in rendered.tokens]
        return pb.RenderResponse(entries=entries, render_digest=rendered.context.digest)
