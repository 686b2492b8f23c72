"""The server of the daemons: loopback without TLS (spec/09-trust §2), and the calls it accepts."""

import asyncio

import grpc
import pytest

from replica.io.grpc_server import add_services, listen, require_loopback
from replica.refusals import ArgumentInvalid


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1"])
def test_loopback_needs_no_tls(address: str) -> None:
    assert refusal(address) is None


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:1", "192.0.2.1:1", "[::]:1", "example.com:1", ":1", "127.0.0.1.example.com:1"],
)
def test_only_loopback_is_served_without_tls(address: str) -> None:
    refused = refusal(address)
    assert refused is not None
    assert "no TLS" in refused.detail


async def test_a_port_of_0_becomes_the_port_chosen() -> None:
    host, _, port = listen(grpc.aio.server(), "127.0.0.1:0").rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0


async def test_a_call_does_not_wait_behind_many_of_another_method() -> None:
    begun: list[str] = []

    def handler(name: str) -> "grpc.RpcMethodHandler":
        async def answer(_request: bytes, _context: object) -> bytes:
            begun.append(name)
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.aio.server()
    address = listen(server, "127.0.0.1:0")
    await add_services(server, {"Test": {name: handler(name) for name in ("Many", "One")}})
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        await channel.unary_unary("/Test/Many")(b"")  # connects
        begun.clear()
        many = [channel.unary_unary("/Test/Many")(b"") for _ in range(200)]
        one = channel.unary_unary("/Test/One")(b"")
        await asyncio.gather(one, *many)
    await server.stop(None)
    assert begun.index("One") < 100, "D398: it came last, and has a queue of its own"


def refusal(address: str) -> ArgumentInvalid | None:
    try:
        require_loopback(address)
    except ArgumentInvalid as error:
        return error
    return None
