"""Starts and stops a hub: identity, store, services, health (spec/04-link §2)."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import structlog
from grpc_reflection.v1alpha import reflection

from antiphon.v1 import blob_pb2, invitation_pb2, sync_pb2
from replica import limits
from replica.conversation import addresses_in, is_loopback
from replica.errors import StoreError, Unavailable
from replica.ids import PublicKey, key_from_hex, short
from replica.io import (
    STOP_GRACE_S,
    Blobs,
    CertificateFile,
    ExpiringBlobs,
    FolderUse,
    MetricsServer,
    Store,
    add_services,
    allow_descriptors,
    bounded_server,
    calls_allowed,
    key_before,
    listen,
    load_or_create,
    load_or_create_secret,
    note_own_key,
    require_endpoint,
    run_until_stopped,
    server_failed,
    take_folder,
)
from replica.link import Authenticator
from replica.measures import Measure
from syncd.hub import Hub
from syncd.io.blob_service import BlobService
from syncd.io.blob_stores import BlobStores
from syncd.io.collection import Collection
from syncd.io.config import HubConfig
from syncd.io.disk_watch import DiskWatch, share_of
from syncd.io.driver import HubDriver
from syncd.io.gate import Gate
from syncd.io.invitation_service import InvitationService
from syncd.io.service import SyncService
from syncd.measures import measures
from syncd.policy import Policy

log = structlog.get_logger()


@dataclass(slots=True)
class HubServer:
    """A running hub."""

    address: str
    """The first of its addresses."""
    key: PublicKey
    driver: HubDriver
    metrics: MetricsServer | None
    addresses: tuple[str, ...]
    certificate: CertificateFile | None
    """What callers over TLS see; None if all addresses are on loopback."""
    invitations: InvitationService
    _server: grpc.aio.Server
    _closing: AsyncExitStack

    async def stop(self) -> None:
        """Refuse new calls, finish the queued effects and the streams, close the store."""
        await self._closing.aclose()

    async def failed(self) -> None:
        """Raise the error that ended the hub's driver or server; wait for ever if both run."""
        await asyncio.gather(self.driver.failed(), server_failed(self._server))


RENEWAL_CHECK_S = 60.0
"""Interval at which a running hub looks at its certificate.

If the clock was off when the certificate was made, as on a machine without a clock of its own,
clients refuse it once the clock is right.
"""
RENEWAL_AGAIN_S = 3600.0
"""Pause after a certificate that the disk refused."""


async def start(config: HubConfig) -> HubServer:
    """Open identity and store, listen, and return once calls are accepted.

    Raises TlsRequired before anything is made; FolderTaken, StoreLocked, DraftUnknown,
    StoreVersionUnknown, KeyFileInvalid, ArgumentInvalid.
    """
    require_endpoint(config.metrics)
    data_dir = config.data_dir.expanduser()
    await take_folder(data_dir, FolderUse.HUB)
    is_key_new = not (data_dir / "identity.key").exists()
    key = load_or_create(data_dir / "identity.key")
    authenticator = Authenticator(key, load_or_create_secret(data_dir / "ticket.secret"))
    async with AsyncExitStack() as closing:  # a start that fails stops what it has started
        store = await closing.enter_async_context(await Store.open(data_dir / "log" / "log.db"))
        blobs = _blobs(data_dir, config)
        await blobs.sweep()
        calls_max = calls_allowed(allow_descriptors())
        policy = _policy(config, data_dir)
        driver = HubDriver(Hub(authenticator.public, policy), store, blobs, calls_max)
        await driver.start()
        await _note_key(store, driver.hub, is_new=is_key_new)
        closing.push_async_callback(driver.stop)
        wanted = addresses_in(config.listen)
        links = min(config.links_per_key_max, limits.STREAMS_MAX)  # gRPC's number has 32 bits
        calls_of_one = max(limits.CONNECTION_CALLS_MAX, 2 * links)
        server = bounded_server(len(wanted), calls_of_one)
        closing.push_async_callback(_stop_calls, server, driver)
        certificate = None
        if not all(map(is_loopback, wanted)):
            certificate = CertificateFile(data_dir / "certificate.pem")
        gate = Gate(driver, authenticator)
        sync_service = SyncService(driver, authenticator, gate, certificate)
        blob_service = BlobService(driver, gate, blobs)
        invitations = InvitationService(driver, gate)
        await invitations.load()
        services = (sync_service, blob_service, invitations)
        if config.reflection:
            _reflect(server)
        handlers = {f"antiphon.v1.{type(one).__name__}": one.handlers() for one in services}
        add_services(server, handlers, gate.keyless)
        addresses = tuple(
            listen(server, one, certificate.credentials() if certificate is not None else None)
            for one in wanted
        )
        metrics = await MetricsServer.started(config.metrics, partial(_measures, driver))
        if metrics is not None:
            closing.push_async_callback(metrics.stop)
        await server.start()
        _run(closing, blobs.run_sweeps(), "sweeps of blobs")
        if certificate is not None:
            _run(closing, _renew(certificate), "renewal")
        log.info("hub ready", address=", ".join(addresses), key=short(authenticator.public))
        public, rest = authenticator.public, closing.pop_all()
        return HubServer(
            addresses[0], public, driver, metrics, addresses, certificate, invitations, server,
            rest,
        )  # fmt: skip


async def _stop_calls(server: grpc.aio.Server, driver: HubDriver) -> None:
    """Refuse new calls, finish the queued effects, then the streams."""
    stopped = asyncio.create_task(server.stop(STOP_GRACE_S))
    # A commit that the disk refuses is refused to its senders as at any time.
    await asyncio.gather(driver.performer.flush(), return_exceptions=True)
    driver.streams.finish_all(Unavailable("the hub stops"))
    await stopped


def _run(closing: AsyncExitStack, work: Coroutine[Any, Any, None], name: str) -> None:
    """Run work in a task until `closing` ends."""
    task = asyncio.create_task(work, name=name)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    closing.push_async_callback(end)


async def _renew(certificate: CertificateFile) -> None:
    while True:
        await asyncio.sleep(RENEWAL_CHECK_S)
        try:
            certificate.renew_if_due(datetime.now(UTC))
        except StoreError:
            # Mostly there are weeks left: it is tried again, and the hub goes on.
            log.exception("the certificate was not renewed")
            await asyncio.sleep(RENEWAL_AGAIN_S)


def _blobs(data_dir: Path, config: HubConfig) -> BlobStores:
    lasting = Blobs(
        data_dir / "blobs",
        bytes_max=config.blob_bytes_max,
        total_bytes_max=config.blobs_bytes_max,
    )
    expiring = ExpiringBlobs(
        data_dir / "expiring",
        bytes_max=config.blob_bytes_max,
        total_bytes_max=config.expiring_blobs_bytes_max,
    )
    return BlobStores(lasting, expiring)


async def _measures(driver: HubDriver) -> list[Measure]:
    return measures(driver.hub, driver.counters)


def _policy(config: HubConfig, data_dir: Path) -> Policy:
    return Policy(
        creators=frozenset(map(key_from_hex, config.creators)) or None,
        entries_max=config.entries_max,
        links_per_key_max=config.links_per_key_max,
        conversations_in_memory_max=config.conversations_in_memory_max,
        logs_bytes_max=config.logs_bytes_max,
        disk_creator_bytes_max=config.disk_creator_bytes_max,
        disk_bytes_max=config.disk_bytes_max or share_of(data_dir),
        host_keys=frozenset(map(key_from_hex, config.host_keys)),
    )


def _reflect(server: grpc.aio.Server) -> None:
    files = (sync_pb2.DESCRIPTOR, blob_pb2.DESCRIPTOR, invitation_pb2.DESCRIPTOR)
    names = [s.full_name for file in files for s in file.services_by_name.values()]
    reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)


async def _note_key(store: Store, hub: Hub, *, is_new: bool) -> None:
    """Log that a hub with a store has another key: clients that know the old one refuse it.

    Without a word the operator would see no link come back. `is_new`: its file was just made.
    """
    before = await key_before(store)
    await note_own_key(store, hub.key)
    is_other = before != hub.key if before is not None else is_new
    if is_other and hub.disk.total:
        log.warning(
            "the hub has another key than at its last start",
            key=short(hub.key),
            next_step="Clients refuse a key they do not know. Restore identity.key, or let each"
            " client run antiphon hub trust.",
        )


async def _failed(server: HubServer, *tasks: "asyncio.Task[None]") -> None:
    """Raise the error that ended the server, or a task that has no end."""
    await asyncio.gather(server.failed(), *tasks)


async def serve(config: HubConfig) -> None:
    """Run until a stop signal, or until the driver fails."""
    server = await start(config)
    hub = server.driver.hub
    watched = None if config.disk_bytes_max else config.data_dir.expanduser()
    tasks = (
        asyncio.create_task(Collection(hub.shelf).run(), name="collection"),
        asyncio.create_task(DiskWatch(hub.disk, watched).run(), name="disk watch"),
    )
    try:
        others = "".join(f" {address}" for address in server.addresses[1:])
        line = f"hub {server.address} {server.key.hex()}{others}"
        await run_until_stopped(_failed(server, *tasks), line)
    finally:
        for task in tasks:
            task.cancel()
        await server.stop()
