"""Cases of a bad network: links cut, sliced, delayed, half-open and black-holed."""

import asyncio
import contextlib

import grpc

from antiphon.conformance.cases import equal
from antiphon.conformance.histories import History
from antiphon.conformance.io.calls import Caller, RawLink
from antiphon.conformance.io.hub.run import (
    NOTHING,
    TABLE,
    HubRun,
    acked,
    entries_of,
    greet,
    opened,
    outcomes,
    push,
    resolve,
)
from antiphon.conformance.io.hub.watching import Watched
from antiphon.conformance.io.proxy import proxied
from antiphon.v1 import sync_pb2 as pb
from replica.link import Entries, Open, Opened

_theme = TABLE.theme("network")


async def _begun(run: HubRun) -> tuple[History, Caller]:
    history = run.new()
    history.say()
    return history, await run.push_all(history)


async def _complete(link: RawLink, history: History) -> None:
    """Check that the hub holds exactly the history, by its digest."""
    await link.send(Open(history.id, history.digest))
    found = [m for m in await link.until_pong(99) if isinstance(m, Opened)]
    equal([(m.equal, m.digest) for m in found], [(True, history.digest)], "the digest")


@_theme.shows("PROM-19", "LINK-15", "PROM-4")
async def a_cut_link_goes_on_from_its_heads(run: HubRun) -> None:
    """After a cut the client opens with heads; what it sends again is in the log once."""
    history, _ = await _begun(run)
    async with proxied(run.address) as proxy:
        caller = await run.enter(history.owner, proxy.address)
        link = await opened(caller, history)
        sent = [history.say(str(number)) for number in range(20)]
        for entry in sent[:10]:
            await link.send(Entries(history.id, (entry,)))
        proxy.cut()
        with contextlib.suppress(grpc.aio.AioRpcError):
            while await link.read() is not None:
                pass
        again = await greet(await run.enter(history.owner, proxy.address))
        await again.send(Open(history.id, history.digest, history.held.log.heads()))
        await again.next_of(Opened)
        await again.send(Entries(history.id, tuple(sent)))
        await acked(again, *sent)
        await _complete(again, history)


@_theme.shows("PROM-20", "PROM-4", "PROM-6")
async def a_push_whose_answer_is_lost_is_sent_again(run: HubRun) -> None:
    """A Push whose answer was lost is resolved by one query, and the same again is one entry."""
    history, owner = await _begun(run)
    entry = history.say("once")
    async with proxied(run.address) as proxy:
        caller = await run.enter(history.owner, proxy.address)
        proxy.is_mute = True
        pushing = asyncio.create_task(outcomes(caller, [entry]))
        watch = Watched(owner, history)
        seen = [e for event in (await watch.until_hint())[0] for e in event.entries.entries]
        while entry.header_bytes not in [e.header for e in seen]:
            seen += [e for event in (await watch.until_hint())[0] for e in event.entries.entries]
        proxy.cut()
        with contextlib.suppress(grpc.aio.AioRpcError):
            await pushing
    equal((await resolve(owner, history, entry.id)).fate, pb.FATE_DURABLE, "the fate")
    await push(owner, entry)
    await _complete(await opened(owner, history), history)


@_theme.shows("PROM-19")
async def bytes_may_come_in_slices(run: HubRun) -> None:
    """A link whose bytes arrive a few at a time, and late, exchanges the same entries."""
    history, owner = await _begun(run)
    async with proxied(run.address) as proxy:
        proxy.chunk_bytes, proxy.latency_s = 97, 0.0005
        link = await opened(await run.enter(history.owner, proxy.address), history)
        sent = [history.say(str(number)) for number in range(5)]
        await link.send(Entries(history.id, tuple(sent)))
        await acked(link, *sent)
        more = history.say("by another link")
        await push(owner, more)
        equal(entries_of(await link.until_pong()), [more.id], "the entries offered")
        await _complete(link, history)


@_theme.shows("LINK-20", "LIM-7")
async def a_reader_that_is_gone_holds_up_nobody(run: HubRun) -> None:
    """Half-open and black-holed readers delay no other; they get all when they come back."""
    history, owner = await _begun(run)
    other = await opened(owner, history)
    async with proxied(run.address) as half_open, proxied(run.address) as black_hole:
        half_open.keeps_target = True
        lost = [await run.enter(history.owner, p.address) for p in (half_open, black_hole)]
        links = [await opened(caller, history) for caller in lost]
        await lost[0].close()
        black_hole.is_mute = black_hole.is_deaf = True
        sent = [history.say(str(number)) for number in range(10)]
        for entry in sent:
            await push(owner, entry)
        wanted = [entry.id for entry in sent]
        equal(entries_of(await other.until_pong()), wanted, "the entries offered to another")
        links[1].cancel()
    back = await greet(owner)
    await back.send(Open(history.id, NOTHING, (history.last.position,)))
    await _complete(await opened(owner, history), history)
