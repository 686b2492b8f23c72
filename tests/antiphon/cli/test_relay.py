"""The relay counts every byte of both directions and closes its connections."""

import asyncio

from antiphon.cli.relay import Relay


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data * 2)
        await writer.drain()
    writer.close()


async def test_bytes_pass_and_are_counted_both_ways() -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Relay(f"127.0.0.1:{port}") as relay:
        host, _, relay_port = relay.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(relay_port))
        writer.write(b"x" * 100)
        assert await reader.readexactly(200) == b"x" * 200
        assert (relay.bytes_up, relay.bytes_down, relay.bytes_total) == (100, 200, 300)
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def test_a_connection_to_a_target_that_is_away_is_closed() -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with Relay(f"127.0.0.1:{port}") as relay:
        host, _, relay_port = relay.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(relay_port))
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
