"""A client that appends over a link, one entry at a time, and keeps nothing."""

import grpc

from replica.io import HubCalls, rpc
from replica.limits import VERSION
from replica.link import Ack, Credit, Entries, Frame, Hello, Welcome, decode_frame
from replica.log import Entry

Stream = grpc.aio.StreamStreamCall[bytes, bytes]


async def connect(calls: HubCalls) -> Stream:
    """Return a stream on which hub and client have greeted each other."""
    _, ticket = await calls.authenticate()
    stream: Stream = calls.channel.stream_stream("/antiphon.v1.SyncService/Link")(
        metadata=((rpc.TICKET_METADATA, ticket),)
    )
    await stream.write(Frame.of(Hello((VERSION,)), "to_hub").data)
    welcome = decode_frame(await _read(stream), "to_client")
    assert isinstance(welcome, Welcome), welcome
    return stream


def frames(entry: Entry) -> tuple[bytes, bytes]:
    """Return the frame that sends an entry, and the frame that acks it."""
    sent = Frame.of(Entries(entry.conversation, (entry,)), "to_hub")
    acked = Frame.of(Ack(entry.conversation, (entry.id,)), "to_client")
    return sent.data, acked.data


async def append(stream: Stream, sent: bytes, acked: bytes) -> None:
    """Send one entry and wait for its ack."""
    await stream.write(sent)
    while (data := await _read(stream)) != acked:
        message = decode_frame(data, "to_client")
        assert isinstance(message, Credit), message


async def _read(stream: Stream) -> bytes:
    data = await stream.read()
    assert isinstance(data, bytes), "the hub ended the link"
    return data
