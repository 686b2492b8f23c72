"""A daemon's server: loopback without TLS (spec/09-trust §2), the calls of a connection."""

import asyncio
import socket

import grpc
import pytest

from replica.io import rpc
from replica.io.serving.grpc_server import add_services, bounded_server, listen, require_loopback
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


@pytest.mark.parametrize(
    "address", ["127.0.0.1:99999", "127.0.0.1:65536", "localhost", "0.0.0.0:99999"]
)
async def test_a_port_beyond_the_last_is_refused_and_not_taken_modulo(address: str) -> None:
    credentials = grpc.ssl_server_credentials([(b"", b"")])
    with pytest.raises(ArgumentInvalid, match="host:port"):
        listen(grpc.aio.server(), address, credentials)


async def test_a_port_of_0_becomes_the_port_chosen() -> None:
    host, _, port = listen(grpc.aio.server(), "127.0.0.1:0").rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0


async def test_a_call_beyond_those_of_its_connection_waits_for_one_that_ends() -> None:
    begun, may_end = asyncio.Queue[bytes](), asyncio.Event()

    async def answer(request: bytes, _context: object) -> bytes:
        begun.put_nowait(request)
        await may_end.wait()
        return request

    server = bounded_server(calls_max=2)
    address = listen(server, "127.0.0.1:0")
    handlers = {"Call": grpc.unary_unary_rpc_method_handler(answer)}
    add_services(server, {"Test": handlers}, rpc.anybody)
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel, asyncio.timeout(20):
        await channel.channel_ready()  # a connection states its bound when it begins
        calls = [channel.unary_unary("/Test/Call")(bytes([n])) for n in range(3)]
        assert {await begun.get(), await begun.get()} == {b"\0", b"\1"}
        async with grpc.aio.insecure_channel(address, options=[("other", 1)]) as other:
            fourth = other.unary_unary("/Test/Call")(b"\3")
            assert await begun.get() == b"\3", "another connection's calls do not wait"
            may_end.set()
            assert await asyncio.gather(*calls, fourth) == [b"\0", b"\1", b"\2", b"\3"]
    await server.stop(None)


def refusal(address: str) -> ArgumentInvalid | None:
    try:
        require_loopback(address)
    except ArgumentInvalid as error:
        return error
    return None


async def test_a_port_in_use_is_refused_with_the_options_that_choose_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ArgumentInvalid, match="the port is in use") as refused:
            listen(bounded_server(), f"127.0.0.1:{port}")
    assert "--hub-port" in refused.value.next_step
