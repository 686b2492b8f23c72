"""A client that appends over a link, one entry at a time, and keeps nothing."""

import grpc

from replica.io import HubCalls, rpc
from replica.limits import VERSION
from replica.link import Ack, Entries, Frame, Hello, Message, Welcome, decode_frame
from replica.log import Entry

Stream = grpc.aio.StreamStreamCall[bytes, bytes]


async def connect(calls: HubCalls) -> Stream:
    """Return a stream on which hub and client have greeted each other."""
    _, ticket = await calls.authenticate()
    stream: Stream = calls.channel.stream_stream("/antiphon.v1.SyncService/Link")(
        metadata=((rpc.TICKET_METADATA, ticket),)
    )
    await _write(stream, Hello((VERSION,)))
    welcome = await _read(stream)
    assert isinstance(welcome, Welcome), welcome
    return stream


async def append(stream: Stream, entry: Entry) -> None:
    """Send one entry and wait for its ack."""
    await _write(stream, Entries(entry.conversation, (entry,)))
    while not isinstance(message := await _read(stream), Ack):
        assert type(message).__name__ == "Credit", message
    assert message.ids == (entry.id,), message


async def _write(stream: Stream, message: Message) -> None:
    await stream.write(Frame.of(message, "to_hub").data)


async def _read(stream: Stream) -> Message:
    data = await stream.read()
    assert isinstance(data, bytes), "the hub ended the link"
    return decode_frame(data, "to_client")
