"""How many appends per second does a hub acknowledge as durable, with 1 and 32 clients?

Clients append one signed entry at a time and wait for its ack, by a unary Push
or over a link as replicas do; each has its own key and connection. Beside both,
in turn on the same server: a unary call that does nothing; and, on another one,
an fsync slowed by 3 ms. A table says where the hub spends its time on one append.
"""

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.v1 import sync_pb2 as pb
from bench import append_parts, empty_hub, link_client
from bench.hub_process import HubProcess, build_slow_fsync, hub_process
from bench.result import Goal, arguments, report, say
from replica.conversation import Author, Conversation
from replica.ids import ConversationId, EntryId
from replica.io import HubCalls, Store, rpc
from replica.log import (
    Entry,
    Genesis,
    Grant,
    Member,
    Message,
    Role,
    Speaker,
    Text,
    entry_to_pb,
)

CLIENTS = 32
SECONDS = 4.0
ROUNDS = 5
ROUND_S = 3.0

Exchange = tuple[bytes, bytes]
"""What a client sends to append an entry, and the answer that says it is durable."""
SALT = bytes(16)


@dataclass(frozen=True)
class Rate:
    """Calls per second, and the hub's CPU time for each."""

    per_s: float
    cpu_us: float


def _members(owner: Author, authors: list[Author]) -> tuple[Conversation, list[Entry]]:
    """Begin a conversation in which all authors may write; return it and its entries."""
    genesis = owner.genesis(Genesis((owner.public,)), salt=SALT, time_ms=1)
    held = Conversation(ConversationId(genesis.id))
    held.admit(genesis)
    entries = [genesis]
    for author in authors:
        grant = Member(Grant(author.public, Role.WRITER))
        entry = owner.write(held, grant, parents=(genesis.id,), salt=SALT, time_ms=1)
        held.admit(entry)
        entries.append(entry)
    return held, entries


def _messages(held: Conversation, author: Author, count: int) -> list[Entry]:
    """Write and admit `count` messages that follow the genesis."""
    written = []
    for _ in range(count):
        body = Message(Speaker.USER, (Text("x" * 200),))
        entry = author.write(held, body, parents=(EntryId(held.id),), salt=SALT, time_ms=1)
        held.admit(entry, verified=True)
        written.append(entry)
    return written


def _push(entry: Entry) -> Exchange:
    """Return the request that pushes an entry, and the response that says it is durable."""
    request = pb.PushRequest(conversation=entry.conversation, entries=[entry_to_pb(entry)])
    response = pb.PushResponse(outcomes=[pb.PushOutcome(id=entry.id, durable=True)])
    return request.SerializeToString(), response.SerializeToString()


async def _push_all(calls: HubCalls, exchanges: list[Exchange], deadline: float) -> int:
    """Push one entry after another until `deadline`; return how many are durable."""
    _, ticket = await calls.authenticate()
    metadata = ((rpc.TICKET_METADATA, ticket),)
    call = calls.channel.unary_unary("/antiphon.v1.SyncService/Push")
    for done, (request, expected) in enumerate(exchanges):
        if time.monotonic() >= deadline:
            return done
        response = await call(request, metadata=metadata, timeout=rpc.CALL_TIMEOUT_S)
        assert response == expected, pb.PushResponse.FromString(response)
    raise RuntimeError("too few entries were prepared")


async def _append_over_link(
    stream: link_client.Stream, exchanges: list[Exchange], deadline: float
) -> int:
    """Append one entry after another until `deadline`; return how many are durable."""
    for done, (sent, acked) in enumerate(exchanges):
        if time.monotonic() >= deadline:
            stream.cancel()
            return done
        await link_client.append(stream, sent, acked)
    raise RuntimeError("too few entries were prepared")


async def _call_empty(calls: HubCalls, deadline: float) -> int:
    """Make one empty call after another until `deadline`; return how many."""
    call = calls.channel.unary_unary(empty_hub.PATH)
    done = 0
    while time.monotonic() < deadline:
        await call(b"", timeout=rpc.CALL_TIMEOUT_S)
        done += 1
    return done


async def _drive(hub: HubProcess, clients: int, kind: str, seconds: float, folder: str) -> Rate:
    """Return the rate at which `clients` clients complete calls, without their preparation."""
    store = await Store.open(Path(folder) / "pins.db")
    owner = Author(Ed25519PrivateKey.generate(), 1)
    authors = [Author(Ed25519PrivateKey.generate(), 1) for _ in range(clients)]
    held, first = _members(owner, authors)
    setup = HubCalls(hub.address, owner.key, store)
    assert set((await setup.push(held.id, tuple(first))).values()) == {None}

    # Entries are signed and encoded before the clock starts: the hub is measured, not the writers.
    count = 0 if kind == "empty" else int(seconds * 6_000 / clients)
    exchange = link_client.frames if kind == "link" else _push
    prepared = [[exchange(e) for e in _messages(held, author, count)] for author in authors]
    calls = [HubCalls(hub.address, author.key, store) for author in authors]
    for call in calls:
        await call.authenticate()
    streams = [await link_client.connect(call) for call in calls] if kind == "link" else []
    began, cpu_began = time.monotonic(), hub.cpu_s()
    deadline = began + seconds
    if kind == "append":
        pairs = zip(calls, prepared, strict=True)
        work = [_push_all(call, exchanges, deadline) for call, exchanges in pairs]
    elif kind == "link":
        linked = zip(streams, prepared, strict=True)
        work = [_append_over_link(stream, exchanges, deadline) for stream, exchanges in linked]
    else:
        work = [_call_empty(call, deadline) for call in calls]
    done = sum(await asyncio.gather(*work))
    rate = Rate(done / (time.monotonic() - began), 1e6 * (hub.cpu_s() - cpu_began) / done)
    for call in (*calls, setup):
        await call.close()
    await store.close()
    return rate


def _rate(hub: HubProcess, clients: int, kind: str, seconds: float = SECONDS) -> Rate:
    with tempfile.TemporaryDirectory() as folder:
        rate = asyncio.run(_drive(hub, clients, kind, seconds, folder))
    say(f"{kind} with {clients} clients: {rate.per_s:.0f}/s, {rate.cpu_us:.0f} us of the hub each")
    return rate


KINDS = ("append", "link", "empty")


def _rounds(hub: HubProcess) -> list[dict[str, Rate]]:
    """Measure appends and empty calls, in alternating order per round."""
    orders = (KINDS, KINDS[::-1])
    return [
        {kind: _rate(hub, CLIENTS, kind, ROUND_S) for kind in orders[number % 2]}
        for number in range(ROUNDS)
    ]


def main() -> int:
    """Measure in pairs and print the results."""
    flags = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build_slow_fsync(folder)
        say("fsync slowed by 3 ms")
        with hub_process(folder / "slow", LD_PRELOAD=str(library), ANTIPHON_FSYNC_MS="3") as hub:
            slow_one = _rate(hub, 1, "append")
            slow_many = _rate(hub, CLIENTS, "append")
        say("fsync as it is")
        with hub_process(folder / "plain", "bench.empty_hub") as hub:
            one = _rate(hub, 1, "append")
            rounds = _rounds(hub)
        parts = append_parts.measure(folder)
    ratios = {kind: [one[kind].per_s / one["empty"].per_s for one in rounds] for kind in KINDS[:2]}
    cpu_us = {kind: median(one[kind].cpu_us for one in rounds) for kind in KINDS}
    for part, part_us in parts.items():
        say(f"{part_us:8.1f} us  {part}")
    for kind, whole_us in cpu_us.items():
        say(f"{whole_us:8.1f} us  one call as a whole: {kind}")
    goals = [
        Goal(
            "32 clients / 1 client, fsync + 3 ms",
            slow_many.per_s / slow_one.per_s,
            5.0,
            at_least=True,
        ),
        *(
            Goal(
                f"32 clients{words} / empty unary calls, median of {ROUNDS} rounds",
                median(ratios[kind]),
                0.5,
                at_least=True,
            )
            for kind, words in (("append", ""), ("link", " over links"))
        ),
    ]
    raw: dict[str, object] = {
        "appends_per_s": {"1": one.per_s, "32": median(r["append"].per_s for r in rounds)},
        "appends_over_links_per_s": {"32": median(r["link"].per_s for r in rounds)},
        "appends_per_s_slow_fsync": {"1": slow_one.per_s, "32": slow_many.per_s},
        "empty_calls_per_s": median(r["empty"].per_s for r in rounds),
        "ratios": {kind: [round(one, 3) for one in found] for kind, found in ratios.items()},
        "hub_cpu_us": {kind: round(whole_us, 1) for kind, whole_us in cpu_us.items()},
        "append_parts_us": {part: round(part_us, 1) for part, part_us in parts.items()},
        "entry_text_bytes": 200,
    }
    return report("append", goals, raw, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
