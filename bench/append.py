"""How many appends per second does a hub acknowledge as durable, with 1 and 32 clients?

Clients push one signed entry at a time and wait for its ack; each has its own
key and connection. Beside it, in the same run on the same server: an empty
unary call (health check), and an fsync slowed by 3 ms.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from bench.hub_process import build_slow_fsync, hub_process
from bench.result import Goal, arguments, report, say

CLIENTS = 32
SECONDS = 4.0


async def _drive(address: str, clients: int, kind: str, seconds: float, folder: str) -> int:
    """Return how many calls `clients` clients completed within `seconds`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from replica.conversation.author import Author
    from replica.conversation.conversation import Conversation
    from replica.ids import ConversationId
    from replica.io import rpc
    from replica.io.hub_calls import HubCalls
    from replica.io.store import Store
    from replica.log.body import Genesis, Grant, Member, Message, Role, Speaker, Text

    store = await Store.open(Path(folder) / "pins.db")
    owner = Author(Ed25519PrivateKey.generate(), 1)
    authors = [Author(Ed25519PrivateKey.generate(), 1) for _ in range(clients)]
    salt = bytes(16)
    genesis = owner.genesis(Genesis((owner.public,)), salt=salt, time_ms=1)
    conversation = ConversationId(genesis.id)
    held = Conversation(conversation)
    held.admit(genesis)
    first = [genesis]
    for author in authors:
        grant = Member(Grant(author.public, Role.WRITER))
        entry = owner.write(held, grant, parents=(genesis.id,), salt=salt, time_ms=1)
        held.admit(entry)
        first.append(entry)
    setup = HubCalls(address, owner.key, store)
    assert set((await setup.push(conversation, tuple(first))).values()) == {None}

    # Entries are signed before the clock starts: the hub is measured, not the writers.
    count = int(seconds * 4_000 / clients) if kind == "append" else 0
    prepared = []
    for author in authors:
        own = []
        for _ in range(count):
            body = Message(Speaker.USER, (Text("x" * 200),))
            entry = author.write(held, body, parents=(genesis.id,), salt=salt, time_ms=1)
            held.admit(entry, verified=True)
            own.append(entry)
        prepared.append(own)
    calls = [HubCalls(address, author.key, store) for author in authors]
    for call in calls:
        await call.authenticate()
    deadline = time.monotonic() + seconds
    done = 0

    async def append(number: int) -> None:
        nonlocal done
        for entry in prepared[number]:
            if time.monotonic() >= deadline:
                return
            outcome = await calls[number].push(conversation, (entry,))
            assert outcome == {entry.id: None}, outcome
            done += 1
        raise RuntimeError("too few entries were prepared")

    async def empty(number: int) -> None:
        nonlocal done
        stub = health_pb2_grpc.HealthStub(calls[number].channel)
        while time.monotonic() < deadline:
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=rpc.CALL_TIMEOUT_S)
            done += 1

    work = append if kind == "append" else empty
    await asyncio.gather(*(work(number) for number in range(clients)))
    for call in (*calls, setup):
        await call.close()
    await store.close()
    return done


def _rate(address: str, clients: int, kind: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        done = asyncio.run(_drive(address, clients, kind, SECONDS, folder))
    say(f"{kind} with {clients} clients: {done / SECONDS:.0f}/s")
    return done / SECONDS


def main() -> int:
    """Measure in pairs and print."""
    flags = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build_slow_fsync(folder)
        say("fsync slowed by 3 ms")
        with hub_process(
            folder / "slow", LD_PRELOAD=str(library), ANTIPHON_FSYNC_MS="3"
        ) as address:
            slow_one = _rate(address, 1, "append")
            slow_many = _rate(address, CLIENTS, "append")
        say("fsync as it is")
        with hub_process(folder / "plain") as address:
            empty_before = _rate(address, CLIENTS, "empty")
            many = _rate(address, CLIENTS, "append")
            one = _rate(address, 1, "append")
            empty_after = _rate(address, CLIENTS, "empty")
    empty = (empty_before + empty_after) / 2
    goals = [
        Goal("32 clients / 1 client, fsync + 3 ms", slow_many / slow_one, 5.0, at_least=True),
        Goal("32 clients / empty unary calls", many / empty, 0.4, at_least=True),
    ]
    raw: dict[str, object] = {
        "appends_per_s": {"1": one, "32": many},
        "appends_per_s_slow_fsync": {"1": slow_one, "32": slow_many},
        "empty_calls_per_s": {"before": empty_before, "after": empty_after},
        "entry_text_bytes": 200,
    }
    return report("append", goals, raw, json_only=flags.json)


if __name__ == "__main__":
    sys.exit(main())
