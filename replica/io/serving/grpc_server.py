"""The server parts common to the daemons: listening, health, running until a signal."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Mapping
from itertools import starmap
from typing import Any

import grpc

from replica import limits
from replica.conversation import is_loopback, require_address
from replica.errors import AntiphonError, with_step
from replica.io.process import allow_descriptors, connections_allowed, stop_signals
from replica.io.serving import health, rpc
from replica.io.serving.tls_refusals import TlsRequired
from replica.refusals import ArgumentInvalid

LOOK_S = 1.0
"""Interval of looks at a server."""
_OTHER_PORT = (
    "End the process that has the port, or choose another: with `--listen`, or with `--hub-port`"
    " of `antiphon up`."
)
STOP_GRACE_S = 2.0
"""Seconds a daemon waits for its calls to end before it stops."""


class ServerEnded(AntiphonError):
    """The gRPC server of this process has ended, so that no call is answered any more."""

    reason = "SERVER_ENDED"
    next_step = "Start it again; its log says more. The data is as it was."


def bounded_server(
    addresses: int = 1, calls_max: int = limits.CONNECTION_CALLS_MAX
) -> grpc.aio.Server:
    """Return a server of so many addresses, with bounds for connections and calls (LIM-14).

    A connection may have `calls_max` calls at a time; more wait at its caller.
    """
    connections_max = connections_allowed(allow_descriptors(), addresses)
    bounds = ((rpc.CONNECTIONS_MAX, connections_max), (rpc.STREAMS_MAX, calls_max))
    return grpc.aio.server(options=(*rpc.SERVER_OPTIONS, *bounds))


def require_loopback(address: str, *, name: str = "") -> None:
    """Refuse an address (host:port) off loopback: without TLS only loopback is allowed.

    `name` is its setting. Raises TlsRequired, and ArgumentInvalid for what is no address.
    """
    if not is_loopback(address):
        what = f"{name}: " if name else ""
        raise TlsRequired(f"{what}{address} is not on loopback, and there is no TLS")
    require_address(address, port_min=0, name=name)


def listen(
    server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None = None
) -> str:
    """Listen on `address`, off loopback with TLS; return it with the port chosen.

    Raises ArgumentInvalid, and TlsRequired off loopback without `credentials`.
    """
    try:
        if credentials is not None and not is_loopback(address):
            require_address(address, port_min=0, name="listen")
            port = server.add_secure_port(address, credentials)
        else:
            require_loopback(address, name="listen")
            port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise why_not(address, _OTHER_PORT) from error
    return f"{address.rsplit(':', 1)[0]}:{port}"


def why_not(address: str, other_port: str, *, name: str = "") -> ArgumentInvalid:
    """Return the system's reason for refusing to listen on an address, which gRPC hides.

    `other_port` is the next step where the port is in use; `name` is the setting, if it is said.
    """
    what = f"{name}: can't" if name else "can't"
    reason = "in use or invalid"
    try:
        found = socket.getaddrinfo(*require_address(address, port_min=0), type=socket.SOCK_STREAM)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as probe:
            probe.bind(found[0][4])
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            refusal = ArgumentInvalid(f"{what} listen on {address}: the port is in use")
            return with_step(refusal, other_port)
    return ArgumentInvalid(f"{what} listen on {address}: {reason}")


def add_services(
    server: grpc.aio.Server, services: Mapping[str, rpc.Handlers], keyless: rpc.Admit
) -> None:
    """Serve services by name, and the standard health service for them, after any others.

    `keyless` admits calls that need no key, those of methods that are not here among them.
    """
    all_services = {**services, health.NAME: health.handlers(services.keys(), keyless)}
    generic = starmap(grpc.method_handlers_generic_handler, all_services.items())
    # Not registered one by one: DECISIONS D398.
    server.add_generic_rpc_handlers((*generic, _NotHere(keyless)))


class _NotHere(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # only its stubs are generic
    """Answers calls of all methods: those that no handler before it has."""

    def __init__(self, admit: rpc.Admit) -> None:
        self._handler = rpc.not_here(admit)

    def service(self, _details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any]":
        return self._handler


async def server_failed(server: grpc.aio.Server) -> None:
    """Raise ServerEnded once a server has ended by itself; wait for ever while it serves.

    gRPC's loop ends for good with any error outside a call, and the process would live on.
    """
    try:
        # With a timeout: without one it waits for the calls that are open, too.
        while await server.wait_for_termination(LOOK_S):
            pass
    except Exception as error:  # of gRPC, of whatever kind
        raise ServerEnded(f"{type(error).__name__}: {error}") from error
    raise ServerEnded("it was stopped")


async def run_until_stopped(vital: Awaitable[None], ready_line: str) -> None:
    """Print `ready_line`, then wait for a stop signal; raise the error that ended `vital`.

    `vital` normally never ends. Signal handlers are installed before the line is
    printed, since its reader may send a signal.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in stop_signals():
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
