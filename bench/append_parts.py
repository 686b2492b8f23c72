"""The parts of the hub's time for one append: the real functions in sequence, in-process."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.v1 import sync_pb2 as pb
from replica.conversation import Author, Conversation
from replica.ids import PublicKey
from replica.io import Store
from replica.link import Entries, Frame, entries_from_pb
from replica.log import Entry, Genesis, Message, Speaker, Text, entry_to_pb
from replica.log.codec.entries import decode_header
from replica.log.entry import verify_body, verify_signature
from syncd.hub import Hub
from syncd.policy import Policy

COUNT = 2_000
GROUP = 16
"""Appends that share one commit, as with 32 clients."""


def _entries() -> tuple[Entry, list[Entry]]:
    author = Author(Ed25519PrivateKey.generate(), 1)
    salt = bytes(16)
    genesis = author.genesis(Genesis((author.public,)), salt=salt, time_ms=1)
    held = Conversation(genesis.conversation)
    held.admit(genesis)
    written = []
    for _ in range(COUNT):
        body = Message(Speaker.USER, (Text("x" * 200),))
        entry = author.write(held, body, parents=(genesis.id,), salt=salt, time_ms=1)
        held.admit(entry, verified=True)
        written.append(entry)
    return genesis, written


def _us(work: Callable[[Entry], object], entries: list[Entry]) -> float:
    began = time.perf_counter()
    for entry in entries:
        work(entry)
    return 1e6 * (time.perf_counter() - began) / len(entries)


async def _store_us(folder: Path, entries: list[Entry]) -> float:
    async with await Store.open(folder / "parts.db") as store:
        began = time.process_time()
        for at in range(0, len(entries), GROUP):
            await store.append(entries[at : at + GROUP])
        return 1e6 * (time.process_time() - began) / len(entries)


def measure(folder: Path) -> dict[str, float]:
    """Return microseconds per append by part; `hub core` holds all parts above it."""
    genesis, entries = _entries()
    requests = {
        e.id: pb.PushRequest(conversation=e.conversation, entries=[entry_to_pb(e)]) for e in entries
    }
    data = {i: request.SerializeToString() for i, request in requests.items()}
    owner = PublicKey(genesis.header.author)
    hub = Hub(PublicKey(bytes(32)), Policy())
    hub.begin_push(owner).whole(Entries(genesis.conversation, (genesis,)), 0.0)
    alone = Conversation(genesis.conversation)
    alone.admit(genesis)
    return {
        "parse the request": _us(lambda e: pb.PushRequest.FromString(data[e.id]), entries),
        "read the entry, header checked": _us(
            lambda e: entries_from_pb(pb.Entries(entries=requests[e.id].entries)), entries
        ),
        "of that the header": _us(lambda e: decode_header(e.header_bytes), entries),
        "verify the signature": _us(verify_signature, entries),
        "verify the body": _us(verify_body, entries),
        "admit and fold, signature apart": _us(lambda e: alone.admit(e, verified=True), entries),
        "hub core: all from verifying to effects": _us(
            lambda e: hub.begin_push(owner).whole(Entries(e.conversation, (e,)), 0.0), entries
        ),
        "encode for one reader": _us(
            lambda e: Frame.of(Entries(e.conversation, (e,)), "to_client"), entries
        ),
        f"store, {GROUP} in one commit, CPU": asyncio.run(_store_us(folder, entries)),
    }
