"""HostService over grpc.aio (spec/07-host §6): description, rendering, derived state."""

import asyncio
from typing import Any

import grpc

from antiphon.v1 import host_pb2 as pb
from model_host.contexts import Contexts
from model_host.io.engine_thread import EngineThread
from model_host.io.host import Host
from model_host.io.request_handler import Offer
from model_host.plan import gather_branch, render_branch
from model_host.refusals import TokenizerBytesMissing
from replica.conversation import Conversation
from replica.ids import ID_BYTES, ConversationId, EntryId
from replica.io import Replica, rpc
from replica.link import Authenticator, profile_to_pb
from replica.log import Kind
from replica.refusals import ArgumentInvalid, ConversationUnknown, NotAllowed


class HostService:
    """The calls of HostService."""

    def __init__(
        self,
        replica: Replica,
        host: Host,
        thread: EngineThread,
        offer: Offer,
        authenticator: Authenticator,
    ) -> None:
        """Answer from the state of `host`, `thread` and `replica`."""
        self._replica = replica
        self._host = host
        self._thread = thread
        self._offer = offer
        self._authenticator = authenticator

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """Return the byte-level handlers."""
        return grpc.method_handlers_generic_handler(
            "antiphon.v1.HostService",
            {
                "Authenticate": rpc.unary(pb.HostServiceAuthenticateRequest, self.authenticate),
                "Describe": rpc.unary(pb.DescribeRequest, self.describe),
                "Render": rpc.unary(pb.RenderRequest, self.render),
                "CountTokens": rpc.unary(pb.CountTokensRequest, self.count_tokens),
                "Evict": rpc.unary(pb.EvictRequest, self.evict),
                "ListCheckpoints": rpc.unary(pb.ListCheckpointsRequest, self.list_checkpoints),
            },
        )

    async def authenticate(
        self, request: pb.HostServiceAuthenticateRequest, _context: rpc.Context
    ) -> pb.HostServiceAuthenticateResponse:
        """Prove possession of a key."""
        response = rpc.answer_authenticate(self._authenticator, request.request)
        return pb.HostServiceAuthenticateResponse(response=response)

    async def describe(
        self, _request: pb.DescribeRequest, context: rpc.Context
    ) -> pb.DescribeResponse:
        """Return the host's profile and load."""
        rpc.caller(self._authenticator, context)
        profile, thread = self._offer.profile, self._thread
        return pb.DescribeResponse(
            host_key=self._authenticator.public,
            profiles=[
                pb.Profile(
                    info=profile_to_pb(profile.info),
                    weights_digest=profile.weights_digest,
                    tokenizer_digest=profile.tokenizer_digest,
                    template_digest=profile.template_digest,
                    render_recipe_digest=profile.render_recipe_digest,
                    sampler_digest=profile.sampler_digest,
                    numerics_class=self._offer.numerics_class,
                    bitwise=self._thread.engine.bitwise,
                    numerics=profile.numerics,
                    tools=profile.has_tools,
                )
            ],
            running=self._host.running,
            waiting=self._host.waiting,
            counters=pb.HostCounters(
                restores=thread.counters.restores,
                fallbacks=thread.counters.fallbacks,
                checkpoints=thread.checkpoints,
                checkpoint_failures=thread.checkpoint_failures,
                generations=self._host.counters.generations,
                refusals=self._host.counters.refusals,
            ),
        )

    def _member(self, conversation: bytes, context: rpc.Context) -> Conversation:
        peer = rpc.caller(self._authenticator, context)
        if len(conversation) != ID_BYTES:
            raise ArgumentInvalid("conversation: 32 bytes")
        held = self._replica.shelf.get(ConversationId(conversation))
        if held is None or not held.is_member(peer):
            raise ConversationUnknown
        return held

    async def render(self, request: pb.RenderRequest, context: rpc.Context) -> pb.RenderResponse:
        """Return the rendering of a sealed context, entry by entry."""
        held = self._member(request.conversation, context)
        node = held.order.nodes.get(EntryId(request.seal))
        if node is None:
            raise ArgumentInvalid("seal: no seal that counts has this id")
        branch = gather_branch(held, node, Contexts(0))  # from scratch, each entry is rendered
        rendered = await asyncio.to_thread(render_branch, branch, self._offer.renderer)
        entries = [pb.RenderedEntry(entry=i, token_ids=ids) for i, ids in rendered.tokens]
        return pb.RenderResponse(entries=entries, render_digest=rendered.context.digest)

    async def count_tokens(
        self, request: pb.CountTokensRequest, context: rpc.Context
    ) -> pb.CountTokensResponse:
        """Count the tokens of a text."""
        rpc.caller(self._authenticator, context)
        try:
            ids = await asyncio.to_thread(self._offer.tokenizer.encode, request.text)
        except TokenizerBytesMissing as error:
            raise ArgumentInvalid(f"text: {error.detail}") from error
        return pb.CountTokensResponse(tokens=len(ids))

    async def evict(self, request: pb.EvictRequest, context: rpc.Context) -> pb.EvictResponse:
        """Drop the derived state of a conversation: from memory, and from disk if asked."""
        held = self._member(request.conversation, context)
        # It costs the host a prefill, which readers can't cause in any other way either.
        if not held.log.membership.may_write(
            rpc.caller(self._authenticator, context), Kind.REQUEST
        ):
            raise NotAllowed("readers drop nothing")
        tokens, checkpoints = await self._thread.evict(held.id, checkpoints=request.checkpoints)
        return pb.EvictResponse(memory_tokens=tokens, checkpoints=checkpoints)

    async def list_checkpoints(
        self, request: pb.ListCheckpointsRequest, context: rpc.Context
    ) -> pb.ListCheckpointsResponse:
        """Return the checkpoints of a conversation, newest first."""
        held = self._member(request.conversation, context)
        return pb.ListCheckpointsResponse(
            checkpoints=[
                pb.CheckpointInfo(
                    seal=c.seal,
                    generation=c.generation,
                    tokens=c.tokens,
                    size_bytes=sum(g.length for g in c.groups),
                )
                for c in await self._thread.manifests(held.id)
            ]
        )
