"""Starts and stops a hub: identity, store, services, health (spec/04-link §1)."""

import asyncio
import signal
from dataclasses import dataclass

import grpc
import structlog
from antiphon.v1 import sync_pb2
from grpc_health.v1 import _async as health
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from replica.aio import rpc
from replica.aio.blobs import Blobs
from replica.aio.keys import load_or_create, load_or_create_secret
from replica.aio.store import Store
from replica.auth import Doorkeeper
from replica.errors import AntiphonError
from replica.ids import PublicKey, short
from replica.refusals import ArgumentInvalid
from syncd.aio.blob_service import BlobService
from syncd.aio.driver import HubDriver
from syncd.aio.service import SyncService
from syncd.config import HubConfig
from syncd.hub import Hub
from syncd.policy import Policy

log = structlog.get_logger()

STOP_GRACE_S = 2.0


@dataclass(slots=True)
class HubServer:
    """A running hub."""

    address: str
    key: PublicKey
    driver: HubDriver
    _server: grpc.aio.Server
    _store: Store

    async def stop(self) -> None:
        """Refuse new calls, finish what is queued, close the store."""
        await self._server.stop(STOP_GRACE_S)
        await self.driver.stop()
        await self._store.close()

    async def failed(self) -> None:
        """Return (or raise) when the hub can no longer perform; never in good health."""
        await self.driver.failed()


async def start(config: HubConfig) -> HubServer:
    """Open identity and store, listen, and return once calls are served.

    Raises StoreLocked, StoreVersionUnknown, KeyFileInvalid, ArgumentInvalid.
    """
    rpc.require_loopback(config.listen)
    data_dir = config.data_dir.expanduser()
    key = load_or_create(data_dir / "identity.key")
    doorkeeper = Doorkeeper(key, load_or_create_secret(data_dir / "ticket.secret"))
    store = await Store.open(data_dir / "log" / "log.db")
    try:
        blobs = Blobs(data_dir / "blobs", bytes_max=config.blob_bytes_max)
        driver = HubDriver(Hub(doorkeeper.public, _policy(config)), store)
        await driver.start()
        server = grpc.aio.server(options=rpc.SERVER_OPTIONS)
        sync_service = SyncService(driver, doorkeeper, blobs)
        blob_service = BlobService(sync_service, blobs)
        server.add_generic_rpc_handlers((sync_service.handlers(), blob_service.handlers()))
        await _add_standard_services(server, reflect=config.reflection)
        address = _listen(server, config.listen)
        await server.start()
    except BaseException:
        await store.close()
        raise
    log.info("hub ready", address=address, key=short(doorkeeper.public))
    return HubServer(address, doorkeeper.public, driver, server, store)


def _policy(config: HubConfig) -> Policy:
    try:
        creators = frozenset(PublicKey(bytes.fromhex(key)) for key in config.creators)
    except ValueError as error:
        raise ArgumentInvalid("creators: hex keys of 64 digits") from error
    return Policy(
        creators or None, config.entries_max, config.links_per_key_max, config.blob_bytes_max
    )


def _listen(server: grpc.aio.Server, listen: str) -> str:
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise ArgumentInvalid(f"cannot listen on {listen}: the port is taken or invalid") from error
    return f"{listen.rsplit(':', 1)[0]}:{port}"


async def _add_standard_services(server: grpc.aio.Server, *, reflect: bool) -> None:
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for name in ("", "antiphon.v1.SyncService", "antiphon.v1.BlobService"):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    if reflect:
        services = sync_pb2.DESCRIPTOR.services_by_name.values()
        names = [s.full_name for s in services] + ["antiphon.v1.BlobService"]
        reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)


async def serve(config: HubConfig) -> None:
    """Run until SIGINT or SIGTERM, or until the hub can't go on."""
    server = await start(config)
    print(f"hub {server.address} {server.key.hex()}", flush=True)  # noqa: T201  # the ready line
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    stopping = asyncio.create_task(stop.wait())
    failing = asyncio.create_task(server.failed())
    done, _ = await asyncio.wait((stopping, failing), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    failing.cancel()
    await server.stop()
    if failing in done:
        failing.result()


def main_error(error: AntiphonError) -> str:
    """Return what the operator reads when the hub can't start."""
    return f"syncd: {error.detail}\n  next: {error.next_step} [{error.reason}]"
