"""Cases of chapter 04 §4: flow control by bytes, and readers that do not read."""

import asyncio

from antiphon.conformance.cases import check, equal
from antiphon.conformance.histories import History
from antiphon.conformance.io.calls import Caller, RawLink
from antiphon.conformance.io.hub.run import HELLO, TABLE, HubRun, entries_of, push
from antiphon.conformance.writers import said
from replica.ids import Digest
from replica.limits import FRAME_BYTES_MAX
from replica.link import Credit, Entries, Message, Open, Pong, Welcome

_theme = TABLE.theme("credit")

BIG = 400_000


async def _long(run: HubRun, count: int) -> tuple[History, Caller]:
    """Push a conversation of `count` messages of 400 kB."""
    history = run.new()
    owner = await run.push_all(history)
    for number in range(count):
        await push(owner, history.write(said(chr(97 + number) * BIG)))
    return history, owner


async def _open(caller: Caller, history: History) -> tuple[RawLink, Welcome]:
    link = caller.link()
    await link.send(HELLO)
    welcome = await link.next_of(Welcome)
    await link.send(Open(history.id, Digest(bytes(32)), ()))
    return link, welcome


async def _until_silent(link: RawLink) -> tuple[list[Message], int]:
    """Read until two Pings in a row bring nothing else; return the messages and counted bytes."""
    found: list[Message] = []
    counted, rounds = 0, 0
    while rounds < 2:
        before = len(found)
        for message in await link.until_pong(rounds + 1, 0):
            if isinstance(message, Pong):
                counted = message.sent_bytes
            else:
                found.append(message)
        rounds = rounds + 1 if len(found) == before else 0
    return found, counted


@_theme.shows("LINK-4", "LINK-93")
async def a_hub_stops_at_the_credit_and_goes_on_with_more(run: HubRun) -> None:
    """A hub begins no frame of entries at its limit, and goes on when more is granted."""
    history, owner = await _long(run, 9)
    link, welcome = await _open(owner, history)
    first, counted = await _until_silent(link)
    most = welcome.credit_bytes + FRAME_BYTES_MAX
    check(0 < counted < most, f"a hub sent {counted} counted bytes on {most} at most")
    check(len(entries_of(first)) < 10, "a hub sent all entries without credit")
    found = entries_of(first)
    while len(found) < len(history.entries):
        await link.send(Credit(64 * 1024 * 1024))
        found += [e.id for e in (await link.next_of(Entries)).entries]
    equal(found, [e.id for e in history.entries], "the ids of the entries sent")


@_theme.shows("LINK-4")
async def an_old_limit_shrinks_nothing(run: HubRun) -> None:
    """A Credit below an earlier one changes nothing."""
    history, owner = await _long(run, 3)
    link = owner.link()
    await link.send(HELLO, Open(history.id, Digest(bytes(32)), ()))
    found: list[bytes] = []
    while len(found) < len(history.entries):
        await link.send(Credit(64 * 1024 * 1024), Credit(0))
        found += [e.id for e in (await link.next_of(Entries)).entries]


@_theme.shows("LINK-5")
async def bytes_that_a_ping_names_count_as_received(run: HubRun) -> None:
    """A Pong's limit exceeds the bytes that the Ping says were sent, lost ones included."""
    caller = await run.enter(run.new().owner)
    link = caller.link()
    await link.send(HELLO)
    credit_bytes = (await link.next_of(Welcome)).credit_bytes
    for sent_bytes in (0, credit_bytes // 2, credit_bytes):
        *_, pong = await link.until_pong(3, sent_bytes)
        assert isinstance(pong, Pong)
        check(
            pong.limit_bytes > sent_bytes,
            f"the limit after {sent_bytes} sent bytes is {pong.limit_bytes}",
        )


@_theme.shows("LINK-26", needs="--wait")
async def a_stream_that_nobody_reads_ends(run: HubRun) -> None:
    """A link whose reader reads nothing for 60 s, with more to read, ends with SLOW_READER."""
    wait_s = run.allow(run.scale.write_timeout + 4)
    history, owner = await _long(run, 12)
    reader = await run.enter(history.owner)
    link, _ = await _open(reader, history)
    await link.send(Credit(64 * 1024 * 1024))
    await asyncio.sleep(wait_s)
    equal(await link.end(), "SLOW_READER", "the reason of a link that was not read")
    await owner.close()
