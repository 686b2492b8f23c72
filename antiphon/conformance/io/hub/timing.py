"""Cases that compare times, and run alone: other cases would hold up the kit itself."""

import asyncio

from antiphon.conformance.cases import check
from antiphon.conformance.io.hub.run import TABLE, HubRun, acked, greet, opened
from replica.link import Entries

_theme = TABLE.theme("timing")

LONG = 1_000
"""Entries of a long frame."""
PAUSE_S = 0.02
"""Time in which a frame reaches the hub, in seconds."""


@_theme.shows("LINK-92", "LIM-7")
async def a_long_frame_holds_up_nobody(run: HubRun) -> None:
    """While a hub admits a frame of 1,000 entries it answers the Ping of another link."""
    history = run.new()
    owner = await run.push_all(history)
    link, other = await opened(owner, history), await greet(await run.enter(history.owner))
    await other.until_pong()
    sent = tuple(history.say("") for _ in range(LONG))
    await link.send(Entries(history.id, sent))
    acking = asyncio.create_task(acked(link, *sent))
    await asyncio.sleep(PAUSE_S)
    answered = 0
    while not acking.done():
        await other.until_pong(8 + answered)
        answered += not acking.done()
    await acking
    check(answered > 1, "no Ping was answered while a long frame was admitted")
