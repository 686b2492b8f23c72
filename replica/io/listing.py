"""The conversations a hub lists to a key, asked for once (spec/04-link §4, LINK-8)."""

import asyncio

import grpc

from replica.ids import ConversationId
from replica.io import rpc, status
from replica.io.hub_calls import HubCalls
from replica.limits import CREDIT_BYTES, LISTED_MAX, VERSION
from replica.link import Close, Credit, Frame, Hello, Listing, Message, Ping, Pong, decode_frame
from replica.refusals import QuotaExceeded


async def listed(calls: HubCalls) -> tuple[ConversationId, ...]:
    """Return the ids of the conversations this key is a member of, as the hub lists them.

    Follows and stores nothing. Raises QuotaExceeded beyond LISTED_MAX,
    HubUnreachable, and the hub's refusal.
    """
    _, ticket = await calls.authenticate()
    call = calls.channel.stream_stream("/antiphon.v1.SyncService/Link")(
        metadata=((rpc.TICKET_METADATA, ticket),)
    )
    try:
        async with asyncio.timeout(rpc.CALL_TIMEOUT_S):
            await _send(call, Hello((VERSION,), follow=True), Ping(0))
            return await _read(call)
    except grpc.aio.AioRpcError as error:
        raise status.from_rpc_error(error) from error
    finally:
        call.cancel()


async def _send(call: "grpc.aio.StreamStreamCall[bytes, bytes]", *messages: Message) -> None:
    for message in messages:
        await call.write(Frame.of(message, "to_hub").data)


async def _read(call: "grpc.aio.StreamStreamCall[bytes, bytes]") -> tuple[ConversationId, ...]:
    found: dict[ConversationId, None] = {}
    received, goes_on = 0, False
    async for data in call:
        match decode_frame(data, "to_client"):
            case Listing(items):
                received, goes_on = received + len(data), True
                found |= dict.fromkeys(item.conversation for item in items)
                if len(found) > LISTED_MAX:
                    raise QuotaExceeded(f"the hub lists more than {LISTED_MAX:,} conversations")
            case Pong() if goes_on:  # there is more, or nothing comes before the next one
                await _send(call, Credit(received + CREDIT_BYTES), Ping(0))
                goes_on = False
            case Pong():
                break
            case Close(None, fault) if fault is not None:
                raise status.error_of(fault)
            case _:
                pass
    return tuple(found)
