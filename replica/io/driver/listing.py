"""The conversations a hub lists to a key (spec/04-link §4, LINK-8)."""

import asyncio

from replica.errors import AntiphonError, ReplicaClosed
from replica.ids import ConversationId
from replica.io.calls import Call, HubCalls, cut_short, send, short_link
from replica.io.driver.replica import Replica
from replica.io.serving import status
from replica.limits import CREDIT_BYTES, LISTED_MAX, VERSION
from replica.link import Close, Credit, Hello, Listing, Ping, Pong, decode_frame
from replica.refusals import QuotaExceeded

_WANTED = "the end of the list"


async def listed(calls: HubCalls) -> tuple[ConversationId, ...]:
    """Return the ids of the conversations this key is a member of, as the hub lists them.

    Follows and stores nothing. Raises QuotaExceeded beyond LISTED_MAX, HubUnreachable, also
    where the list is cut short, and the hub's refusal.
    """
    _, ticket = await calls.authenticate()
    async with short_link(calls.channel, ticket, _WANTED) as call:
        await send(call, Hello((VERSION,), follow=True), Ping(0))
        return await _read(call)


async def hear_list(replica: Replica, timeout_s: float) -> None:
    """Wait until a replica that follows has the beginning of the hub's list.

    Returns where no hub answers in time, or it refuses. Raises ReplicaClosed.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await replica.wait_for(lambda: replica.hub.is_tried, timeout_s)
            if replica.hub.is_linked:
                # The list is sent with the Welcome, before any later answer on the connection.
                await replica.calls().authenticate()
    except ReplicaClosed:
        raise
    except (AntiphonError, TimeoutError):
        return  # what is wrong with the hub, its link reports


async def _read(call: Call) -> tuple[ConversationId, ...]:
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
                await send(call, Credit(received + CREDIT_BYTES), Ping(0))
                goes_on = False
            case Pong():
                return tuple(found)
            case Close(None, fault) if fault is not None:
                raise status.error_of(fault)
            case _:
                pass
    raise cut_short(_WANTED)
