"""The connection to a hub that is away."""

import asyncio
import socket

import grpc
import pytest

from antiphon.v1.blob_pb2_grpc import BlobServiceStub
from antiphon.v1.sync_pb2_grpc import SyncServiceStub
from replica.io.calls.hub_channel import open_channel, plain_channel
from replica.refusals import HubUnreachable


async def test_a_hub_that_is_away_is_said_in_the_words_of_the_system() -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.2", 0))
        address = f"127.0.0.2:{taken.getsockname()[1]}"
        with pytest.raises(HubUnreachable) as away:
            await open_channel(address)
    assert away.value.detail == f"{address}: connection refused"


async def test_a_name_that_no_machine_has_is_said_without_a_number() -> None:
    with pytest.raises(HubUnreachable) as away:
        await open_channel("no-such-machine.invalid:7411")
    assert "Errno" not in away.value.detail


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no TLS is spoken there"),
        (b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0", "no TLS is spoken there"),  # HTTP/2, as of gRPC
        (b"", "the connection was closed in the TLS handshake"),
    ],
)
async def test_what_is_no_hub_is_said_without_the_words_of_a_library(
    answer: bytes, words: str
) -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.2", 0) as server:
        address = f"127.0.0.2:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(HubUnreachable) as away:
            await open_channel(address)
    assert away.value.detail == f"{address}: {words}"


async def test_a_channel_soon_connects_to_a_hub_that_was_away_for_long() -> None:
    """gRPC pauses between tries of its own, and fails calls meanwhile: for up to two minutes."""
    tries = asyncio.Semaphore(0)

    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.release()
        writer.close()

    away = await asyncio.start_server(refuse, "127.0.0.1", 0)
    channel = plain_channel(f"127.0.0.1:{away.sockets[0].getsockname()[1]}").grpc
    state = channel.get_state(try_to_connect=True)
    async with away, asyncio.timeout(8):  # without a bound the sixth try comes after 16 s
        for _ in range(6):
            await tries.acquire()
            while state is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
            state = channel.get_state(try_to_connect=True)
    await channel.close()


async def test_a_channel_makes_one_stub_of_a_service() -> None:
    channel = plain_channel("127.0.0.1:1")
    async with channel.grpc:
        assert channel.stub(SyncServiceStub) is channel.stub(SyncServiceStub)
        assert isinstance(channel.stub(BlobServiceStub), BlobServiceStub)
