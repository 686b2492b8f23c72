"""Starts and stops a model host: engine, replica, service (spec/07-host §1)."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from model_host.engine import (
    CONTEXT_TOKENS_DEFAULT,
    ModelFile,
    TorchEngine,
    open_model,
    soonest_numerics,
)
from model_host.errors import CheckpointError
from model_host.io.answers import Host, RequestHandler
from model_host.io.calls import (
    ArchiveService,
    Callers,
    Calls,
    CountTokens,
    HostService,
    HostStats,
    PagesCall,
    RenderCall,
    ReplayHandler,
    StatsCall,
    Warm,
)
from model_host.io.config import HostConfig
from model_host.io.contexts import HubCheckpoints, HubTier
from model_host.io.disk_watch import DiskWatch
from model_host.io.fetch import cache_dir, resolve
from model_host.io.files import Checkpoints, Journals, KeyRing, prepared_folder
from model_host.io.invited import Invitations, Invited
from model_host.io.profiles import Offer, Offers, Profiles, make_offer
from model_host.io.threads import EngineThread, in_own_thread
from model_host.operators import Operators
from model_host.profiles import Profile, require_room, weights_bytes
from replica.core import FollowPolicy
from replica.errors import HostError
from replica.ids import ConversationId, PublicKey, key_from_hex, short
from replica.io import (
    STOP_GRACE_S,
    FolderUse,
    Keyless,
    MetricsServer,
    Opening,
    Replica,
    add_services,
    bounded_server,
    hear_list,
    listen,
    load_or_begin,
    load_or_create_secret,
    require_endpoint,
    require_free,
    require_loopback,
    run_until_stopped,
    server_failed,
    take_folder,
)
from replica.link import Authenticator, HostInfo, profile_names

log = structlog.get_logger()

LINK_WAIT_S = 2.0
"""Seconds in which a hub that is there lists this host, before the host says that it is ready."""
_CHECKPOINTS = "checkpoints"
"""The folder of checkpoints, below that of derived state."""


@dataclass(frozen=True, slots=True)
class HostServer:
    """A running host."""

    address: str
    key: PublicKey
    profiles: Profiles
    host: Host
    handler: RequestHandler
    replica: Replica
    replays: ReplayHandler
    hub_tier: HubCheckpoints
    task: "asyncio.Task[None]"
    server: grpc.aio.Server
    metrics: MetricsServer | None = None

    @property
    def offer(self) -> Offer:
        """What it answers with where a request names no profile."""
        return self.profiles.offers.default

    @property
    def profile(self) -> Profile:
        """The default profile."""
        return self.offer.profile

    @property
    def thread(self) -> EngineThread:
        """The thread of the default profile. Raises HostError while that is not loaded."""
        loaded = self.profiles.loaded(self.offer)
        if loaded is None:
            raise HostError(f"{self.profile.name} is not loaded")
        return loaded.thread

    async def failed(self) -> None:
        """Raise the error that ended a part of the host; wait for ever if all run."""
        await asyncio.gather(
            asyncio.shield(self.task),
            self.replica.failed(),
            self.profiles.failed(),
            server_failed(self.server),
        )


@asynccontextmanager
async def start(config: HostConfig, engine: TorchEngine | None = None) -> AsyncIterator[HostServer]:
    """Load the default profile, link to the hub if it answers, serve; stop at the end of the block.

    An `engine` that is already loaded is used for the default profile, in place of the first
    model of `config`. Raises TlsRequired before anything is made; ModelFileError, FolderTaken,
    ProfileTooLarge, StoreLocked, KeyFileInvalid, HostKeyGone, ArgumentInvalid, HubKeyUnknown.
    """
    invitations = Invitations.read(config.invitations)
    data_dir = await _own_folder(config)
    store = _store_in(data_dir)
    key = load_or_begin(data_dir / "identity.key", store, is_host=True)
    authenticator = Authenticator(key, load_or_create_secret(data_dir / "ticket.secret"))
    derived = data_dir / "derived"
    ring = _ring(config, data_dir, derived)
    pages = _checkpoints(config, derived, ring)
    hub_key = await _hub_key(config, store, invitations)
    operators = Operators(authenticator.public, map(key_from_hex, config.operator_keys))
    offers, engine = await _load(config, engine)
    profiles = _profiles(config, offers, pages, ring)
    server = bounded_server()
    address = listen(server, config.listen)
    info = HostInfo(authenticator.public, address, offers.infos)
    async with _opening(config, store, key, info, invitations, hub_key) as replica:
        archives = await asyncio.to_thread(prepared_folder, derived / "imports")
        hub_tier = HubCheckpoints(replica, profiles, pages, ring.archive, archives, _tier(config))
        handler = RequestHandler(replica, key, profiles, Journals(data_dir / "journal"), hub_tier)
        host, callers = _host(replica, handler, authenticator)
        stats = HostStats(host, profiles, hub_tier, operators, config)
        calls = Calls(
            RenderCall(callers, offers, handler.rendering),
            CountTokens(callers, offers, handler.rendering),
            Warm(callers, profiles, handler.rendering, hub_tier),
            StatsCall(callers, host, stats),
            PagesCall(callers, profiles, handler.rendering),
            ArchiveService(callers, profiles, pages, ring.archive, archives),
            ReplayHandler(callers, profiles, handler),
        )
        service, keyless = HostService(callers, host, profiles, hub_tier, calls), Keyless().admit
        add_services(server, {"antiphon.v1.HostService": service.handlers(keyless)}, keyless)
        metrics = await MetricsServer.started(config.metrics, stats.measures)
        invited, disk = Invited(replica, invitations), DiskWatch(host, pages)
        task = asyncio.create_task(_run(host, hub_tier, invited, disk), name="host")
        try:
            profiles.add(offers.default, engine)
            del engine  # it would stay in memory once its profile is unloaded
            await server.start()
            await _ready(replica, address)
            yield HostServer(
                address, authenticator.public, profiles, host, handler, replica, calls.replays,
                hub_tier, task, server, metrics,
            )  # fmt: skip
        finally:
            if metrics is not None:
                await metrics.stop()
            task.cancel()
            profiles.stop()
            await asyncio.gather(task, return_exceptions=True)
            await server.stop(STOP_GRACE_S)
            await handler.close()
            await profiles.close()


async def _own_folder(config: HostConfig) -> Path:
    """Return the data folder, noted as a host's, which no other process has.

    Raises TlsRequired before it is made; StoreLocked.
    """
    require_loopback(config.listen, name="listen")
    require_endpoint(config.metrics)
    data_dir = config.data_dir.expanduser()
    await take_folder(data_dir, FolderUse.HOST)
    require_free(_store_in(data_dir))  # before a model is read
    return data_dir


def _store_in(data_dir: Path) -> Path:
    return data_dir / "log" / "log.db"


async def _ready(replica: Replica, address: str) -> None:
    """Wait until the hub lists this host, and conversations to it, or has not answered."""
    await hear_list(replica, LINK_WAIT_S)
    log.info("host ready", address=address, key=short(replica.public))


def _opening(
    config: HostConfig,
    store: Path,
    key: Ed25519PrivateKey,
    info: HostInfo,
    invitations: Invitations,
    hub_key: PublicKey | None,
) -> Opening[Replica]:
    """Return the replica of the host, still closed."""
    policy = _follow_policy(config, invitations.conversations)
    return Replica.open(store, key, config.hub, hub_key=hub_key, follow=policy, host=info)


async def _hub_key(config: HostConfig, store: Path, invitations: Invitations) -> PublicKey | None:
    """Return the key that the hub must prove; None for the pinned one, or any at first.

    Raises HubKeyUnknown, PinDamaged, StoreError.
    """
    if config.hub_key:
        return key_from_hex(config.hub_key)
    return await invitations.hub_key(store, config.hub)


def _host(
    replica: Replica, handler: RequestHandler, authenticator: Authenticator
) -> tuple[Host, Callers]:
    host = Host(replica, handler)
    return host, Callers(replica, authenticator, host.unstored_reason)


async def _run(host: Host, hub_tier: HubCheckpoints, invited: Invited, disk: DiskWatch) -> None:
    async with asyncio.TaskGroup() as tasks:
        for part in (host, hub_tier, invited, disk):
            tasks.create_task(part.run())


async def _load(config: HostConfig, engine: TorchEngine | None) -> tuple[Offers, TorchEngine]:
    """Read the headers of all models, and load the first unless it is loaded."""
    opened = (asyncio.to_thread(_opened_offer, config, *each) for each in config.models[1:])
    rest = await asyncio.gather(*opened)  # one that is missing is told before the first is loaded
    if engine is None:
        first, engine = await _load_first(config)
    else:
        first = _offer(config, engine.file, engine.numerics, engine.config.context_tokens)
    return Offers([first, *rest]), engine


async def _load_first(config: HostConfig) -> tuple[Offer, TorchEngine]:
    name, stated = config.models[0]
    path = await asyncio.to_thread(resolve, name)
    file = await asyncio.to_thread(open_model, path)
    numerics = await asyncio.to_thread(_numerics, file, stated)
    need = weights_bytes(file.config, numerics) + config.kv_bytes_max
    require_room(name, need, config.memory_bytes_max)  # before it is loaded
    log.info("loading model", path=str(path), numerics=numerics)
    return await asyncio.gather(
        asyncio.to_thread(_offer, config, file, numerics),
        in_own_thread(_load_engine, config, file, numerics),
    )


def _opened_offer(config: HostConfig, name: str, numerics: str) -> Offer:
    file = open_model(resolve(name))
    return _offer(config, file, _numerics(file, numerics))


def _numerics(file: ModelFile, stated: str) -> str:
    return soonest_numerics(file) if stated == "auto" else stated


def _offer(
    config: HostConfig, file: ModelFile, numerics: str, context_tokens: int | None = None
) -> Offer:
    limit = context_tokens or config.context_tokens or CONTEXT_TOKENS_DEFAULT
    return make_offer(file, numerics=numerics, context_tokens=limit, kv_bytes=config.kv_bytes_max)


def _load_engine(config: HostConfig, file: ModelFile, numerics: str) -> TorchEngine:
    return TorchEngine.load(
        file,
        numerics=numerics,
        threads=config.threads,
        cache_dir=cache_dir(),
        context_tokens=config.context_tokens or None,
        kv_bytes=config.kv_bytes_max,
        cache_bytes=config.weights_cache_bytes_max,
    )


def _ring(config: HostConfig, data_dir: Path, derived: Path) -> KeyRing:
    if config.key_ring is None:
        return KeyRing.load(data_dir)
    return KeyRing.load_named(config.key_ring.expanduser(), derived / _CHECKPOINTS)


def _checkpoints(config: HostConfig, derived: Path, ring: KeyRing) -> Checkpoints:
    pages = Checkpoints(
        derived / _CHECKPOINTS,
        mac_key=ring.checkpoint,
        budget_bytes=config.checkpoint_bytes_max,
    )
    with suppress(CheckpointError):  # the disk may be full of other things
        pages.make_room()  # before the store is opened, which needs some
    return pages


def _tier(config: HostConfig) -> HubTier:
    return HubTier(
        config.hub_checkpoint_bytes_max,
        config.hub_checkpoint_idle_s,
        config.hub_checkpoint_lifetime_s,
        config.hub_checkpoint_tokens_min,
    )


def _profiles(config: HostConfig, offers: Offers, pages: Checkpoints, ring: KeyRing) -> Profiles:
    return Profiles(
        offers,
        lambda offer, model: _load_engine(config, model, offer.profile.numerics),
        pages,
        salt_key=ring.salt,
        kv_bytes=config.kv_bytes_max,
        memory_bytes=config.memory_bytes_max,
    )


def _follow_policy(config: HostConfig, invited: frozenset[ConversationId]) -> FollowPolicy:
    """Return which conversations are served."""
    return FollowPolicy(
        frozenset(map(key_from_hex, config.owner_keys)) or None,
        invited,
        open_max=config.open_max,
        per_creator_max=config.open_per_owner_max,
        unasked_max=config.open_unasked_max,
        idle_s=config.open_idle_s,
    )


async def serve(config: HostConfig) -> None:
    """Run until a stop signal, or until a task of the host fails."""
    async with start(config) as server:
        gc.freeze()
        gc.enable()
        names = ", ".join(profile_names(server.profiles.offers.infos))
        line = f"host {server.address} {server.key.hex()} {names}"
        await run_until_stopped(server.failed(), f"{line} {server.profile.digest.hex()}")
