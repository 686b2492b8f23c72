"""Bytes that no gRPC client sends: a hub goes on serving, and logs nothing about them."""

import asyncio
import socket
import struct
from pathlib import Path

import grpc
import pytest

from antiphon.v1 import sync_pb2, sync_pb2_grpc
from bench.hub_process import hub_process
from replica.io.serving import grpc_server
from replica.io.serving.grpc_server import ServerEnded, bounded_server, server_failed

HEADERS, SETTINGS = 1, 4
END_STREAM_AND_HEADERS = 5
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Encode a header that is in no table (RFC 7541, 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request(stream: int, path: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """Encode a request without a message."""
    headers = [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers"), *more,
    ]  # fmt: skip
    block = b"".join(literal(*one) for one in headers)
    return frame(HEADERS, END_STREAM_AND_HEADERS, stream, block)


def answered(address: str, data: bytes, answers: int) -> None:
    """Send requests on a connection of their own, and wait for so many answers."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0) + data)
        stream, seen = connection.makefile("rb"), 0
        while seen < answers:
            head = stream.read(9)
            assert len(head) == 9, "the hub closed the connection"
            stream.read(int.from_bytes(head[:3], "big"))
            seen += head[3] == HEADERS and bool(head[4] & 1)


async def serves(address: str) -> bool:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = sync_pb2_grpc.SyncServiceStub(channel)
        asked = sync_pb2.AuthenticateRequest(client_key=bytes(32), client_nonce=bytes(32))
        try:
            await stub.Authenticate(asked, timeout=20)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.INVALID_ARGUMENT  # no point of the curve
        return True


WRONG: dict[bytes, list[tuple[bytes, bytes]]] = {
    b"/\xff": [],
    b"/x": [(b"x", b"\xff")] * 40,
    b"/agent": [(b"user-agent", b"\xff")],
    b"/timeout": [(b"grpc-timeout", b"xx")],
    b"/antiphon.v1.SyncService/Hosts": [(b"grpc-encoding", b"gzip")],
}
"""Headers by the path that they come with."""


async def test_a_hub_serves_and_logs_nothing_behind_headers_that_are_wrong(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with hub_process(tmp_path / "hub", log=log) as hub:
        before = log.stat().st_size
        for path, more in WRONG.items():
            many = b"".join(request(2 * number + 1, path, *more) for number in range(20))
            await asyncio.to_thread(answered, hub.address, many, 20)
            assert await serves(hub.address), path
            assert log.stat().st_size == before, log.read_text()[-2_000:]


async def test_a_server_that_ends_by_itself_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "LOOK_S", 0.01)
    server = bounded_server()
    server.add_insecure_port("127.0.0.1:0")
    await server.start()
    watching = asyncio.create_task(server_failed(server))
    await asyncio.sleep(0)
    await server.stop(None)
    with pytest.raises(ServerEnded):
        await asyncio.wait_for(watching, 20)
