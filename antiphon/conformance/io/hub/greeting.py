"""Cases of chapter 04 §4: Hello and Welcome, frames, heartbeats, linked hosts."""

import asyncio
import os
from dataclasses import replace

from antiphon.conformance.cases import NotApplicable, check, equal
from antiphon.conformance.io.calls import Caller
from antiphon.conformance.io.hub.run import HELLO, NOTHING, TABLE, HubRun, entries_of, greet, push
from antiphon.conformance.writers import Writer
from antiphon.v1 import log_pb2
from antiphon.v1 import sync_pb2 as pb
from replica.ids import ConversationId, Digest
from replica.io import now_ms
from replica.limits import ENTRIES_PER_FRAME_MAX, FRAME_BYTES_MAX, HOST_PROFILES_MAX
from replica.link import (
    Close,
    Credit,
    Entries,
    Fault,
    Hello,
    HostInfo,
    Ids,
    LinkedHost,
    Message,
    Open,
    Opened,
    Ping,
    Pong,
    ProfileInfo,
    Welcome,
)
from replica.log import LogitBias, Sampling

_theme = TABLE.theme("greeting")

PROFILE = ProfileInfo(Digest(b"p" * 32), "kit", 4096)
NOWHERE = ConversationId(bytes(32))


async def _welcome(caller: Caller, hello: Hello = HELLO) -> Welcome:
    link = caller.link()
    await link.send(hello)
    found = await link.read()
    check(isinstance(found, Welcome), f"a hub's first message is {type(found).__name__}")
    assert isinstance(found, Welcome)
    link.cancel()
    return found


@_theme.shows("LINK-3", "LINK-6")
async def a_hub_answers_hello_with_welcome(run: HubRun) -> None:
    """The first message of a hub is a Welcome with its proved key and limits."""
    caller = await run.enter(run.new().owner)
    found = await _welcome(caller)
    equal(found.version, 1, "the version")
    equal(found.hub_key, caller.hub_key, "the key of the Welcome")
    equal(found.frame_bytes_max, FRAME_BYTES_MAX, "frame_bytes_max")
    check(found.credit_bytes > 0, "a Welcome without credit")
    check(found.idle_timeout_ms > 0, "a Welcome without an idle time-out")


@_theme.shows("LINK-3")
async def nothing_precedes_hello(run: HubRun) -> None:
    """Any message but Close and Fault before Hello ends the link: LINK_OUT_OF_ORDER."""
    history = run.new()
    caller = await run.enter(history.owner)
    before: tuple[Message, ...] = (
        Open(NOWHERE, NOTHING),
        Entries(history.id, (history.genesis,)),
        Ids(NOWHERE, ()),
        Credit(1),
        Ping(1),
    )
    for message in before:
        link = caller.link()
        await link.send(message)
        found = await link.ended()
        equal(found, "LINK_OUT_OF_ORDER", f"the reason for {type(message).__name__} first")


@_theme.shows("LINK-3")
async def a_fault_may_precede_hello(run: HubRun) -> None:
    """A Fault before Hello changes nothing, and a Close ends the link without an error."""
    caller = await run.enter(run.new().owner)
    link = caller.link()
    await link.send(Fault("ANY_REASON"), HELLO)
    await link.next_of(Welcome)
    link = caller.link()
    await link.send(Close())
    equal(await link.ended(), "", "the reason after a Close before Hello")


@_theme.shows("LINK-3")
async def a_common_version_is_needed(run: HubRun) -> None:
    """Without a common version the link ends: VERSION_UNSUPPORTED; with one it is chosen."""
    caller = await run.enter(run.new().owner)
    for versions in ((), (0,), (1000, 1001)):
        link = caller.link()
        await link.send(Hello(versions))
        equal(await link.ended(), "VERSION_UNSUPPORTED", f"the reason for versions {versions}")
    equal((await _welcome(caller, Hello((1000, 1)))).version, 1, "the version chosen")


@_theme.shows("LINK-6", "ERR-2", "PROM-17")
async def malformed_frames_get_a_typed_error(run: HubRun) -> None:
    """Bytes that do not parse end the link with FRAME_MALFORMED, whenever they come."""
    caller = await run.enter(run.new().owner)
    for data in (b"\xff", b"\x12\x05\x0a", b"\x0a\x02\x08", b"", os.urandom(2) + b"\xff" * 40):
        for greeted in (False, True):
            link = await greet(caller) if greeted else caller.link()
            await link.send_bytes(data)
            equal(await link.ended(), "FRAME_MALFORMED", f"the reason for the frame {data.hex()}")


@_theme.shows("LINK-6", "PROM-17")
async def ids_of_another_width_are_malformed(run: HubRun) -> None:
    """A frame whose ids have another width than 32 bytes ends the link: FRAME_MALFORMED."""
    caller = await run.enter(run.new().owner)
    for short in (
        pb.LinkRequest(open=pb.Open(conversation=b"short", digest=bytes(32))),
        pb.LinkRequest(open=pb.Open(conversation=bytes(32), digest=bytes(33))),
        pb.LinkRequest(ids=pb.Ids(conversation=bytes(32), ids=bytes(33))),
    ):
        link = await greet(caller)
        await link.send_bytes(short.SerializeToString())
        equal(await link.ended(), "FRAME_MALFORMED", "the reason for an id of another width")


@_theme.shows("LINK-6")
async def a_frame_has_a_greatest_size(run: HubRun) -> None:
    """A frame of 1 MiB passes; one byte more ends the link with FRAME_TOO_LARGE."""
    caller = await run.enter(run.new().owner)
    link = await greet(caller)
    await link.send_bytes(_frame_of(FRAME_BYTES_MAX))
    await link.until_pong()
    await link.send_bytes(_frame_of(FRAME_BYTES_MAX + 1))
    equal(await link.ended(), "FRAME_TOO_LARGE", "the reason for a frame of 1,048,577 bytes")


def _frame_of(size: int) -> bytes:
    """Return a Ping with an unknown field that makes it `size` bytes long."""
    ping = pb.LinkRequest(ping=pb.Ping(nonce=1)).SerializeToString()
    overhead = len(ping) + 2 + 3  # the tag of field 200, and a length below 2 MiB
    filler = size - overhead
    length = bytes([filler & 0x7F | 0x80, filler >> 7 & 0x7F | 0x80, filler >> 14])
    return ping + b"\xc2\x0c" + length + bytes(filler)


@_theme.shows("LIM-4")
async def items_are_counted_before_they_are_parsed(run: HubRun) -> None:
    """A frame of more empty entries, heads or ids than allowed is FRAME_TOO_LARGE as a whole."""
    caller = await run.enter(run.new().owner)
    entries = pb.Entries(entries=[log_pb2.Entry()] * (ENTRIES_PER_FRAME_MAX + 1))
    heads = pb.Open(
        conversation=bytes(32), digest=bytes(32), heads=[pb.LaneHead()] * 8193, with_heads=True
    )
    for request in (pb.LinkRequest(entries=entries), pb.LinkRequest(open=heads)):
        link = await greet(caller)
        await link.send_bytes(request.SerializeToString())
        equal(await link.ended(), "FRAME_TOO_LARGE", "the reason for too many items")


@_theme.shows("LINK-7")
async def pings_are_answered(run: HubRun) -> None:
    """Each Ping gets a Pong of its number."""
    link = await greet(await run.enter(run.new().owner))
    for nonce in (1, 2, 2**63):
        (found,) = await link.until_pong(nonce)
        check(isinstance(found, Pong) and found.limit_bytes > 0, "a Pong without a limit")


@_theme.shows("LINK-7")
async def a_pong_comes_behind_what_was_due(run: HubRun) -> None:
    """A Pong comes behind the answers to earlier frames, and lets what lacks credit wait."""
    history = run.new()
    big = [history.say("x" * 500_000) for _ in range(6)]
    owner = await run.enter(history.owner)
    for entry in history.entries:
        await push(owner, entry)
    link = await greet(owner)
    await link.send(Open(history.id, NOTHING, ()))
    found = await link.until_pong()
    check(isinstance(found[0], Opened), "a Pong came before the Opened that was due")
    sent = entries_of(found)
    check(big[0].id in sent, "a Pong came before entries that were due and had credit")
    check(big[-1].id not in sent, "entries were sent beyond the credit")


@_theme.shows("LINK-7", needs="--wait")
async def an_idle_link_ends(run: HubRun) -> None:
    """A link from which nothing comes for the hub's idle time-out ends with LINK_IDLE."""
    caller = await run.enter(run.new().owner)
    link = caller.link()
    await link.send(HELLO)
    timeout_s = run.allow((await link.next_of(Welcome)).idle_timeout_ms / 1000 + 5)
    began_ms = now_ms()
    equal(await link.end(timeout_s), "LINK_IDLE", "the reason of an idle link")
    lasted_s = (now_ms() - began_ms) / 1000
    check(lasted_s > timeout_s - 6, f"an idle link ended after {lasted_s:.1f} s")


# --- hosts -----------------------------------------------------------------------------


def _host(writer: Writer, address: str = "", profiles: int = 1, name: str = "kit") -> HostInfo:
    listed = tuple(ProfileInfo(PROFILE.digest, name, 4096) for _ in range(profiles))
    return HostInfo(writer.public, address, listed)


@_theme.shows("LINK-25")
async def a_host_describes_its_own_key_within_limits(run: HubRun) -> None:
    """A host of another key, with 17 profiles or a text of 257 bytes is ARGUMENT_INVALID."""
    host = run.new().writer("host")
    caller = await run.enter(host)
    for name, info in (
        ("another key", _host(run.new().owner)),
        ("17 profiles", _host(host, profiles=HOST_PROFILES_MAX + 1)),
        ("an address of 257 bytes", _host(host, address="é" * 128 + "x")),
        ("a name of 257 bytes", _host(host, name="n" * 257)),
    ):
        link = caller.link()
        await link.send(Hello((1,), host=info))
        equal(await link.ended(), "ARGUMENT_INVALID", f"the reason for {name}")
    await greet(caller, Hello((1,), host=_host(host, "é" * 128, HOST_PROFILES_MAX, "n" * 256)))


@_theme.shows("HOST-70")
async def recommended_sampling_is_for_any_answer(run: HubRun) -> None:
    """A host whose recommended sampling has a seed or a logit bias is ARGUMENT_INVALID."""
    host = run.new().writer("host")
    caller = await run.enter(host)
    for sampling in (Sampling(seed=1), Sampling(logit_bias=(LogitBias(1, 1.0),))):
        profile = replace(PROFILE, sampling=sampling)
        link = caller.link()
        await link.send(Hello((1,), host=HostInfo(host.public, "", (profile,))))
        equal(await link.ended(), "ARGUMENT_INVALID", f"the reason for {sampling}")


async def _hosts(caller: Caller) -> list[pb.LinkedHost]:
    return list((await caller.call("Hosts", pb.HostsRequest())).hosts)


def _named(hosts: tuple[LinkedHost, ...], *keys: bytes) -> list[tuple[bytes, bool]]:
    """Return those of these keys that are named, in order, and whether each is vouched for."""
    return [(host.key, host.vouched) for host in hosts if host.key in keys]


@_theme.shows("LINK-29", "LINK-30", "LINK-83")
async def hosts_are_named_those_linked_longest_first(run: HubRun) -> None:
    """A Welcome and Hosts name the linked hosts, the oldest first, and vouch for no stranger."""
    history = run.new()
    member = await run.enter(history.owner)
    hosts = [history.writer(name) for name in ("first", "second", "third")]
    # A key can be made to sort first: the order of links must not be that of keys.
    hosts.sort(key=lambda host: host.public, reverse=True)
    links = []
    for host in hosts:
        links.append(
            await greet(await run.enter(host), Hello((1,), host=_host(host, host.public.hex())))
        )
    keys = [host.public for host in hosts]
    wanted = [(key, False) for key in keys]
    equal(_named((await _welcome(member)).hosts, *keys), wanted, "the hosts of a Welcome")
    found = [
        (host.info.key, host.vouched) for host in await _hosts(member) if host.info.key in keys
    ]
    equal(found, wanted, "the answer of Hosts")
    links[0].cancel()
    await _gone(member, keys[0])
    left = _named((await _welcome(member)).hosts, *keys)
    equal(left, wanted[1:], "the hosts of a Welcome after one has gone")


async def _gone(member: Caller, key: bytes) -> None:
    """Wait until a host whose link was ended is named no more."""
    async with asyncio.timeout(10):
        while any(  # noqa: ASYNC110  # the hub says nothing of links that ended
            host.info.key == key for host in await _hosts(member)
        ):
            await asyncio.sleep(0.05)


@_theme.shows("LINK-29", "LINK-83", needs="--vouched")
async def a_vouched_host_is_first_and_marked(run: HubRun) -> None:
    """A host that the operator vouches for is named before all others, and alone is marked."""
    if run.vouched is None:
        raise NotApplicable("the key of a host that the hub vouches for was not given: --vouched")
    stranger = run.new().writer("stranger")
    for host in (stranger, run.vouched):
        await greet(await run.enter(host), Hello((1,), host=_host(host)))
    member = await run.enter(run.new().owner)
    keys = (stranger.public, run.vouched.public)
    wanted = [(run.vouched.public, True), (stranger.public, False)]
    equal(_named((await _welcome(member)).hosts, *keys), wanted, "the hosts of a Welcome")
    found = [
        (host.info.key, host.vouched) for host in await _hosts(member) if host.info.key in keys
    ]
    equal(found, wanted, "the answer of Hosts")
