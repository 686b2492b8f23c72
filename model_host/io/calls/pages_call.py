"""The call Pages of HostService: where a conversation's current context is (spec/07-host §6)."""

from collections.abc import Callable

from antiphon.v1 import host_pb2 as pb
from model_host.generation import gather_current, render_branch
from model_host.io.calls.callers import Callers, Places, check_member
from model_host.io.contexts import Rendering, locate
from model_host.io.profiles import Offer, Profiles
from model_host.kv import entry_pages, last_seal
from model_host.rendering import Rendered, Room
from model_host.scheduling import owner_of
from replica.conversation import Conversation
from replica.ids import EntryId
from replica.io import rpc
from replica.limits import PAGES_MAX
from replica.order import SealNode
from replica.refusals import ArgumentInvalid


class PagesCall:
    """Answers Pages, to members (HOST-82); nothing is computed, restored or kept for it."""

    def __init__(self, callers: Callers, profiles: Profiles, rendering: Rendering) -> None:
        """Look up contexts in the profile of the last seal, else in the default."""
        self._rendering = rendering
        self._places = Places(PAGES_MAX)
        self._callers = callers
        self._profiles = profiles

    async def answer(self, request: pb.PagesRequest, context: rpc.Context) -> pb.PagesResponse:
        """Return where the tokens of each entry are found first.

        Raises the refusals of the rendering, RateLimited, and ArgumentInvalid for an unknown
        seal.
        """
        held, peer = await self._callers.member(request.conversation, context)

        def read() -> Callable[[], tuple[SealNode | None, Offer, Rendered]]:
            check_member(held, peer)  # it waited for its turn
            node = _branch_end(held, request.seal)
            offer = self._profiles.offers.of_seal(node)
            # A full context is shown too, with what was said behind it.
            room = Room(2 * offer.profile.context_tokens_max)
            branch = gather_current(held, node)
            return lambda: (node, offer, render_branch(branch, offer.renderer, room))

        with self._places.one(peer):
            node, offer, rendered = await self._rendering.read(read, peer)
        located = await locate(self._profiles, held, offer, rendered.context.ids)
        shows_shared = peer == owner_of(held)
        tokens = [(entry, len(ids)) for entry, ids in rendered.tokens]
        return pb.PagesResponse(
            entries=[
                pb.EntryPages(
                    entry=one.entry,
                    cached_tokens=one.cached_tokens,
                    shared_tokens=one.shared_tokens,
                    stored_tokens=one.stored_tokens,
                    absent_tokens=one.absent_tokens,
                )
                for one in entry_pages(tokens, located, shows_shared=shows_shared)
            ],
            tokens=len(rendered.context.ids),
            stored_tokens=located.stored_tokens,
            seal=node.id if node is not None else b"",
        )


def _branch_end(held: Conversation, seal: bytes) -> SealNode | None:
    """Return the seal that ends a branch: the one named, or the one with the latest activity."""
    if not seal:
        return last_seal(held)
    node = held.order.nodes.get(EntryId(seal))
    if node is None:
        raise ArgumentInvalid("seal: no seal that counts has this id")
    return node
