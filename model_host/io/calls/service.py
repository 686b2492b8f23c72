"""HostService over grpc.aio (spec/07-host §6): description, derived state, and calls by name."""

from dataclasses import dataclass
from functools import partial

from antiphon.v1 import host_pb2 as pb
from model_host.io.answers import Host
from model_host.io.calls.archive_service import ArchiveService, checkpoint_to_pb
from model_host.io.calls.callers import Callers
from model_host.io.calls.count_tokens import CountTokens
from model_host.io.calls.pages_call import PagesCall
from model_host.io.calls.render_call import RenderCall
from model_host.io.calls.replay_handler import ReplayHandler
from model_host.io.calls.stats_call import StatsCall
from model_host.io.calls.warm import Warm
from model_host.io.contexts import HubCheckpoints
from model_host.io.profiles import Offer, Profiles
from replica.conversation import Conversation
from replica.io import rpc
from replica.limits import BODY_BYTES_MAX, REQUEST_BYTES_MAX
from replica.link import profile_to_pb
from replica.log import Kind
from replica.refusals import NotAllowed


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of HostService that are objects of their own."""

    render: RenderCall
    count_tokens: CountTokens
    warm: Warm
    stats: StatsCall
    pages: PagesCall
    archives: ArchiveService
    replays: ReplayHandler


class HostService:
    """The calls of HostService."""

    def __init__(
        self,
        callers: Callers,
        host: Host,
        profiles: Profiles,
        hub_tier: HubCheckpoints,
        calls: Calls,
    ) -> None:
        """Answer from the state of `host` and `profiles`, and by `calls`."""
        self._callers = callers
        self._authenticator = callers.authenticator
        self._host = host
        self._profiles = profiles
        self._hub_tier = hub_tier
        self._calls = calls

    def handlers(self, keyless: rpc.Admit) -> rpc.Handlers:
        """Return the byte-level handlers, by method; `keyless` admits the one that needs no key."""
        calls = self._calls
        unary = partial(rpc.unary, admit=self._callers.admit)
        text_bytes = BODY_BYTES_MAX + REQUEST_BYTES_MAX
        return {
            "Authenticate": rpc.unary(
                pb.HostServiceAuthenticateRequest, self.authenticate, admit=keyless
            ),
            "Describe": unary(pb.DescribeRequest, self.describe),
            "Render": unary(pb.RenderRequest, calls.render),
            "CountTokens": unary(pb.CountTokensRequest, calls.count_tokens, bytes_max=text_bytes),
            "Warm": unary(pb.WarmRequest, calls.warm),
            "Evict": unary(pb.EvictRequest, self.evict),
            "Stats": unary(pb.StatsRequest, calls.stats.answer),
            "Pages": unary(pb.PagesRequest, calls.pages.answer),
            "ListCheckpoints": unary(pb.ListCheckpointsRequest, self.list_checkpoints),
            **calls.archives.handlers(),
            "Replay": rpc.writing_stream(
                pb.ReplayRequest, calls.replays.replay, admit=self._callers.admit
            ),
        }

    async def authenticate(
        self, request: pb.HostServiceAuthenticateRequest, _context: rpc.Context
    ) -> pb.HostServiceAuthenticateResponse:
        """Prove possession of a key."""
        response = rpc.answer_authenticate(self._authenticator, request.request)
        return pb.HostServiceAuthenticateResponse(response=response)

    async def describe(
        self, _request: pb.DescribeRequest, context: rpc.Context
    ) -> pb.DescribeResponse:
        """Return the host's profiles, which of them are loaded, and its counters."""
        rpc.caller(self._authenticator, context)
        counts = self._profiles.counts
        return pb.DescribeResponse(
            host_key=self._authenticator.public,
            profiles=[self._described(offer) for offer in self._profiles.offers.all],
            running=self._host.running,
            waiting=self._host.waiting,
            counters=pb.HostCounters(
                restores=counts.batch.restores,
                fallbacks=counts.batch.fallbacks,
                checkpoints=counts.writes.written,
                checkpoint_failures=counts.writes.failed,
                generations=self._host.counters.generations,
                refusals=self._host.counters.refusals,
                checkpoints_dropped=counts.writes.dropped,
                restores_declined=counts.batch.declined,
                groups_audited=counts.audits.audited,
                audit_mismatches=counts.audits.mismatches,
            ),
        )

    def _described(self, offer: Offer) -> pb.Profile:
        profile, loaded = offer.profile, self._profiles.loaded(offer)
        return pb.Profile(
            info=profile_to_pb(offer.info),
            weights_digest=profile.weights_digest,
            tokenizer_digest=profile.tokenizer_digest,
            template_digest=profile.template_digest,
            render_recipe_digest=profile.render_recipe_digest,
            sampler_digest=profile.sampler_digest,
            numerics_class=loaded.numerics_class if loaded is not None else b"",
            bitwise=loaded is not None and loaded.thread.engine.bitwise,
            numerics=profile.numerics,
            tools=profile.has_tools,
            grammar_engine=profile.grammar_engine,
            loaded=loaded is not None,
        )

    async def _member(self, conversation: bytes, context: rpc.Context) -> Conversation:
        held, _ = await self._callers.member(conversation, context)
        return held

    async def evict(self, request: pb.EvictRequest, context: rpc.Context) -> pb.EvictResponse:
        """Drop the derived state of a conversation: from memory; from disk and hub if asked."""
        held = await self._member(request.conversation, context)
        # It costs the host a prefill, which readers can't cause in any other way either.
        if not held.log.membership.may_write(
            rpc.caller(self._authenticator, context), Kind.REQUEST
        ):
            raise NotAllowed("readers drop nothing")
        tokens, checkpoints = await self._profiles.evict(held.id, checkpoints=request.checkpoints)
        if request.checkpoints:
            checkpoints += await self._hub_tier.forget(held)
        return pb.EvictResponse(memory_tokens=tokens, checkpoints=checkpoints)

    async def list_checkpoints(
        self, request: pb.ListCheckpointsRequest, context: rpc.Context
    ) -> pb.ListCheckpointsResponse:
        """Return the checkpoints of a conversation, newest first."""
        held = await self._member(request.conversation, context)
        return pb.ListCheckpointsResponse(
            checkpoints=[checkpoint_to_pb(c) for c in await self._profiles.manifests(held.id)]
        )
