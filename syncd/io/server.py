"""Starts and stops a hub: identity, store, services, health (spec/04-link §2)."""

from dataclasses import dataclass

import grpc
import structlog
from grpc_reflection.v1alpha import reflection

from antiphon.v1 import blob_pb2, sync_pb2
from replica import limits
from replica.ids import PublicKey, key_from_hex, short
from replica.io import (
    STOP_GRACE_S,
    Blobs,
    Store,
    add_health,
    listen,
    load_or_create,
    load_or_create_secret,
    rpc,
    run_until_stopped,
)
from replica.link import Authenticator
from replica.refusals import ArgumentInvalid
from syncd.hub import Hub
from syncd.io.blob_service import BlobService
from syncd.io.config import HubConfig
from syncd.io.driver import HubDriver
from syncd.io.service import SyncService
from syncd.policy import Policy

log = structlog.get_logger()


@dataclass(slots=True)
class HubServer:
    """A running hub."""

    address: str
    key: PublicKey
    driver: HubDriver
    _server: grpc.aio.Server
    _store: Store

    async def stop(self) -> None:
        """Refuse new calls, finish the queued effects, close the store."""
        await self._server.stop(STOP_GRACE_S)
        await self.driver.stop()
        await self._store.close()

    async def failed(self) -> None:
        """Raise the error that ended the hub's driver; wait for ever if it runs."""
        await self.driver.failed()


async def start(config: HubConfig) -> HubServer:
    """Open identity and store, listen, and return once calls are accepted.

    Raises StoreLocked, DraftUnknown, StoreVersionUnknown, KeyFileInvalid, ArgumentInvalid.
    """
    data_dir = config.data_dir.expanduser()
    key = load_or_create(data_dir / "identity.key")
    authenticator = Authenticator(key, load_or_create_secret(data_dir / "ticket.secret"))
    store = await Store.open(data_dir / "log" / "log.db")
    try:
        blobs = Blobs(
            data_dir / "blobs",
            bytes_max=config.blob_bytes_max,
            total_bytes_max=config.blobs_bytes_max,
        )
        driver = HubDriver(Hub(authenticator.public, _policy(config)), store, blobs)
        await driver.start()
        server = grpc.aio.server(options=rpc.SERVER_OPTIONS)
        sync_service = SyncService(driver, authenticator)
        blob_service = BlobService(driver, authenticator, blobs)
        server.add_generic_rpc_handlers((sync_service.handlers(), blob_service.handlers()))
        await add_health(server, "antiphon.v1.SyncService", "antiphon.v1.BlobService")
        if config.reflection:
            _reflect(server)
        address = listen(server, config.listen)
        await server.start()
    except BaseException:
        await store.close()
        raise
    log.info("hub ready", address=address, key=short(authenticator.public))
    return HubServer(address, authenticator.public, driver, server, store)


def _policy(config: HubConfig) -> Policy:
    host_keys = _keys("host_keys", config.host_keys)
    if len(host_keys) > limits.HOSTS_MAX:
        raise ArgumentInvalid(f"host_keys: at most {limits.HOSTS_MAX}, so that a Welcome has all")
    return Policy(
        creators=_keys("creators", config.creators) or None,
        entries_max=config.entries_max,
        links_per_key_max=config.links_per_key_max,
        conversations_in_memory_max=config.conversations_in_memory_max,
        host_keys=host_keys,
    )


def _keys(name: str, texts: list[str]) -> frozenset[PublicKey]:
    try:
        return frozenset(map(key_from_hex, texts))
    except ValueError as error:
        raise ArgumentInvalid(f"{name}: {error}") from error


def _reflect(server: grpc.aio.Server) -> None:
    files = (sync_pb2.DESCRIPTOR, blob_pb2.DESCRIPTOR)
    names = [s.full_name for file in files for s in file.services_by_name.values()]
    reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)


async def serve(config: HubConfig) -> None:
    """Run until SIGINT or SIGTERM, or until the driver fails."""
    server = await start(config)
    try:
        await run_until_stopped(server.failed(), f"hub {server.address} {server.key.hex()}")
    finally:
        await server.stop()
