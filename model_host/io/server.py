"""Starts and stops a model host: engine, replica, service (spec/07-host §1)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

from model_host import sampler
from model_host.engine import Tokenizer, TorchEngine
from model_host.io.checkpoint_files import Checkpoints
from model_host.io.config import HostConfig
from model_host.io.engine_thread import EngineThread
from model_host.io.fetch import cache_dir, resolve
from model_host.io.host import Host
from model_host.io.journal import Journals
from model_host.io.namespaces import Namespaces
from model_host.io.request_handler import Offer, RequestHandler
from model_host.io.service import HostService
from model_host.kv import PagePool
from model_host.profile import Profile
from model_host.render import RECIPE_DIGEST, Renderer
from model_host.step_plan import SEQUENCES_MAX
from model_host.template import Template, check_template
from replica.ids import Digest, PublicKey, short
from replica.io import (
    STOP_GRACE_S,
    Replica,
    add_health,
    listen,
    load_or_create,
    load_or_create_secret,
    rpc,
    run_until_stopped,
)
from replica.link import Authenticator, HostInfo

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class HostServer:
    """A running host."""

    address: str
    key: PublicKey
    offer: Offer
    host: Host
    handler: RequestHandler
    thread: EngineThread
    replica: Replica
    task: "asyncio.Task[None]"

    @property
    def profile(self) -> Profile:
        """The profile of its answers."""
        return self.offer.profile

    async def failed(self) -> None:
        """Raise the error that ended a part of the host; wait for ever if all run."""
        await asyncio.gather(asyncio.shield(self.task), self.replica.failed(), self.thread.failed())


def load_offer(engine: TorchEngine) -> Offer:
    """Read tokenizer and template from the model file and pin everything by digest.

    Raises TokenizerUnknown, TemplateUnsupported.
    """
    file = engine.file
    tokenizer = Tokenizer.build(file.tokenizer)
    template = Template(
        file.template,
        bos_token=_text(file.tokenizer.tokens, file.tokenizer.bos_id),
        eos_token=_text(file.tokenizer.tokens, file.tokenizer.eos_id),
    )
    report = check_template(template, tokenizer)
    if not (report.append_only and report.sentinels_equal_plain):
        log.warning(
            "template rewrites history",
            append_only=report.append_only,
            sentinels_equal_plain=report.sentinels_equal_plain,
        )
    renderer = Renderer.load(template, tokenizer)
    profile = Profile(
        file.name,
        Digest(file.sha256),
        tokenizer.digest,
        template.digest,
        RECIPE_DIGEST,
        sampler.RECIPE_DIGEST,
        engine.numerics,
        engine.config.context_tokens,
        has_tools=renderer.tools.offers,
    )
    stop_ids = {file.tokenizer.eos_id, *map(tokenizer.control_id, ("<|im_end|>", "<|eot_id|>"))}
    return Offer(
        profile,
        renderer,
        tokenizer,
        Digest(engine.numerics_class),
        frozenset(i for i in stop_ids if i is not None),
    )


def _text(tokens: "list[str] | tuple[str, ...]", token_id: int | None) -> str:
    return tokens[token_id] if token_id is not None else ""


@asynccontextmanager
async def start(config: HostConfig, engine: TorchEngine | None = None) -> AsyncIterator[HostServer]:
    """Load the model, link to the hub, serve HostService; stop at the end of the block.

    An `engine` that is already loaded is used as it is. Raises ModelFileError,
    StoreLocked, KeyFileInvalid, ArgumentInvalid. An unreachable hub is no
    error: the host keeps trying.
    """
    data_dir = config.data_dir.expanduser()
    key = load_or_create(data_dir / "identity.key")
    authenticator = Authenticator(key, load_or_create_secret(data_dir / "ticket.secret"))
    if engine is None:
        engine = await asyncio.to_thread(_load_engine, config)
    offer = load_offer(engine)
    thread = _engine_thread(config, data_dir, engine)
    namespaces = Namespaces(engine, load_or_create_secret(data_dir / "salt.secret"))
    server = grpc.aio.server(options=rpc.SERVER_OPTIONS)
    address = listen(server, config.listen)
    info = HostInfo(authenticator.public, address, (offer.profile.info,))
    store_path = data_dir / "log" / "log.db"
    async with Replica.open(store_path, key, config.hub, follow=True, host=info) as replica:
        journals = Journals(data_dir / "journal")
        handler = RequestHandler(replica, key, thread, namespaces, journals, offer)
        host = Host(replica, handler)
        service = HostService(replica, host, thread, offer, authenticator)
        server.add_generic_rpc_handlers((service.handlers(),))
        await add_health(server, "antiphon.v1.HostService")
        thread.start()
        await server.start()
        task = asyncio.create_task(host.run(), name="host")
        try:
            log.info("host ready", address=address, key=short(authenticator.public))
            yield HostServer(
                address, authenticator.public, offer, host, handler, thread, replica, task
            )
        finally:
            task.cancel()
            thread.stop()
            await asyncio.gather(task, return_exceptions=True)
            await server.stop(STOP_GRACE_S)
            await handler.close()
            await thread.close()


def _load_engine(config: HostConfig) -> TorchEngine:
    path = resolve(config.model)
    log.info("loading model", path=str(path), numerics=config.numerics)
    return TorchEngine.load(
        path,
        numerics=config.numerics,
        threads=config.threads,
        cache_dir=cache_dir(),
        context_tokens=config.context_tokens or None,
        kv_bytes=config.kv_bytes_max,
    )


def _engine_thread(config: HostConfig, data_dir: Path, engine: TorchEngine) -> EngineThread:
    checkpoints = Checkpoints(
        data_dir / "derived" / "checkpoints",
        mac_key=load_or_create_secret(data_dir / "checkpoint.secret"),
        budget_bytes=config.checkpoint_bytes_max,
    )
    pool = PagePool(engine.memory, tail_slots=SEQUENCES_MAX, budget_bytes=config.kv_bytes_max)
    return EngineThread(engine, pool, checkpoints)


async def serve(config: HostConfig) -> None:
    """Run until SIGINT or SIGTERM, or until a task of the host fails."""
    async with start(config) as server:
        line = f"host {server.address} {server.key.hex()} {server.profile.name}"
        await run_until_stopped(server.failed(), f"{line} {server.profile.digest.hex()}")
