"""The connection to a process that holds the store, and reads nothing: it was stopped."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest

from replica.io.local import local_client
from replica.io.local.local_client import UNREAD_BYTES_MAX, LocalClient
from replica.io.local.local_frames import LocalFrame, WriteUnconfirmed, read_frame
from replica.io.local.local_server import Identity
from replica.refusals import StoreLocked

BLOB = bytes(1024 * 1024)
APPEND, ACKS = LocalFrame({"op": "append"}, (BLOB,)), LocalFrame({"op": "acks"}, (BLOB,))
CALLS = 3 * UNREAD_BYTES_MAX // len(BLOB)


class Stopped:
    """A client, and the other end of its connection, which reads nothing until it goes on."""

    def __init__(self, client: LocalClient, there: socket.socket) -> None:
        self.client = client
        self.there = there

    @property
    def unread_bytes(self) -> int:
        return self.client._writer.transport.get_write_buffer_size()

    async def go_on(self) -> None:
        """Answer all requests, as they were sent."""
        reader, writer = await asyncio.open_unix_connection(sock=self.there)
        try:
            while (frame := await read_frame(reader)) is not None:
                writer.write(LocalFrame({"number": frame.head["number"]}).encode())
        finally:
            writer.close()


@pytest.fixture
async def stopped(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stopped]:
    monkeypatch.setattr(local_client, "ANSWER_S", 0.01)
    here, there = socket.socketpair(socket.AF_UNIX)
    reader, writer = await asyncio.open_unix_connection(sock=here)
    client = LocalClient(reader, writer, Identity("", None, os.getpid()))
    yield Stopped(client, there)
    client.close()
    there.close()


async def test_requests_that_nobody_reads_take_bounded_memory(stopped: Stopped) -> None:
    refusals = set[type]()
    for _ in range(CALLS):
        with pytest.raises((WriteUnconfirmed, StoreLocked)) as refused:
            await stopped.client.request(APPEND)
        refusals.add(type(refused.value))
    assert stopped.unread_bytes <= UNREAD_BYTES_MAX + 2 * len(BLOB)
    assert refusals == {WriteUnconfirmed, StoreLocked}  # what was not sent is not written either


async def test_acks_that_nobody_reads_take_bounded_memory(stopped: Stopped) -> None:
    for _ in range(CALLS):
        stopped.client.send(ACKS)
    assert stopped.unread_bytes <= UNREAD_BYTES_MAX + 2 * len(BLOB)


async def test_a_process_that_goes_on_is_asked_again(
    stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(CALLS):
        with pytest.raises((WriteUnconfirmed, StoreLocked)):
            await stopped.client.request(APPEND)
    monkeypatch.setattr(local_client, "ANSWER_S", 10.0)
    running = [
        asyncio.create_task(stopped.go_on()),
        asyncio.create_task(stopped.client.run(_unexpected)),
    ]
    async with asyncio.timeout(10):
        while stopped.client._is_silent or stopped.unread_bytes:  # noqa: ASYNC110  # no event
            await asyncio.sleep(0)
        assert (await stopped.client.request(APPEND)).head["number"]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def _unexpected(frame: LocalFrame) -> None:
    raise AssertionError(frame.head)
