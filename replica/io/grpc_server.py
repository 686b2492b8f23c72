"""The server parts common to the daemons: listening, health, running until a signal."""

import asyncio
import signal
from collections.abc import Awaitable

import grpc
from grpc_health.v1 import _async as health
from grpc_health.v1 import health_pb2, health_pb2_grpc

from replica.errors import AntiphonError
from replica.refusals import ArgumentInvalid

STOP_GRACE_S = 2.0
"""Seconds a daemon waits for its calls to end before it stops."""


def require_loopback(address: str) -> None:
    """Raise ArgumentInvalid unless `address` (host:port) is on loopback.

    Without TLS only loopback is allowed.
    """
    host = address.rsplit(":", 1)[0].strip("[]")
    if host not in ("127.0.0.1", "::1", "localhost"):
        raise ArgumentInvalid(f"{host} is not a loopback address, and there is no TLS")


def listen(server: grpc.aio.Server, address: str) -> str:
    """Listen on `address`; return it with the port chosen. Raises ArgumentInvalid."""
    require_loopback(address)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ArgumentInvalid(f"can't listen on {address}: in use or invalid") from error
    return f"{address.rsplit(':', 1)[0]}:{port}"


async def add_health(server: grpc.aio.Server, *services: str) -> None:
    """Serve the standard health service for `services`."""
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for name in ("", *services):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)


async def run_until_stopped(vital: Awaitable[None], ready_line: str) -> None:
    """Print `ready_line`, then wait for SIGINT or SIGTERM; raise the error that ended `vital`.

    `vital` normally never ends. Signal handlers are installed before the line is
    printed, since its reader may send a signal.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    print(ready_line, flush=True)  # noqa: T201  # a supervisor waits for it
    stopping = asyncio.ensure_future(stop.wait())
    working = asyncio.ensure_future(vital)
    await asyncio.wait((stopping, working), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        working.result()
    working.cancel()
    await asyncio.gather(stopping, working, return_exceptions=True)


def explain(program: str, error: AntiphonError) -> str:
    """Return the message for the operator of a daemon that can't continue."""
    return f"{program}: {error.detail}\n  next: {error.next_step} [{error.reason}]"
