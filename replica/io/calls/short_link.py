"""A link for one question, which ends with its answer (spec/04-link §4)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from replica.io.calls.call_end import typed_end
from replica.io.serving import rpc
from replica.link import Frame, Message
from replica.refusals import HubUnreachable

Call = grpc.aio.StreamStreamCall[bytes, bytes]


@asynccontextmanager
async def short_link(channel: Any, ticket: bytes, wanted: str) -> AsyncIterator[Call]:
    """Open a link for the block, for CALL_TIMEOUT_S at most.

    Raises HubUnreachable if `wanted` does not come in time, and the hub's refusal. A block
    that reads to the end of the link without it raises `cut_short`.
    """
    call: Call = channel.stream_stream("/antiphon.v1.SyncService/Link")(
        metadata=((rpc.TICKET_METADATA, ticket),)
    )
    try:
        async with asyncio.timeout(rpc.CALL_TIMEOUT_S), typed_end(call, wanted):
            yield call
    except TimeoutError as error:
        raise HubUnreachable(f"{wanted} did not come in time") from error
    finally:
        call.cancel()


def cut_short(wanted: str) -> HubUnreachable:
    """Return the error of a link that ended before `wanted` came."""
    return HubUnreachable(f"the link ended before {wanted}")


async def send(call: Call, *messages: Message) -> None:
    """Send messages to the hub, in order."""
    for message in messages:
        await call.write(Frame.of(message, "to_hub").data)
