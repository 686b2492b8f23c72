"""Cases of chapter 04 §3: proofs of keys, and tickets."""

import asyncio
import os
from collections.abc import Iterator
from typing import Any

from antiphon.conformance.cases import check, equal
from antiphon.conformance.io.calls import (
    PATIENCE_S,
    TICKET_METADATA,
    Caller,
    RawLink,
    challenge_of,
    refusal,
)
from antiphon.conformance.io.hub.run import TABLE, HubRun, greet
from antiphon.v1 import blob_pb2
from antiphon.v1 import sync_pb2 as pb
from replica.ids import pae
from replica.io import now_ms
from replica.link import NO_CERTIFICATE, Ping, prove

_theme = TABLE.theme("authenticate")

TICKET_LIFETIME_MS = 15 * 60 * 1000
LATE_S = 2.5
"""How late a hub may end a stream whose proof is too old."""
SERVER_ROLE, CLIENT_ROLE = b"\x01", b"\x02"


def transcript(caller: Caller, nonce: bytes, raw: pb.Challenge, role: bytes) -> bytes:
    """Return the bytes that one side signs."""
    fields = (
        raw.hub_key,
        caller.public,
        nonce,
        raw.hub_nonce,
        raw.certificate_digest or NO_CERTIFICATE,
        raw.expire_time_ms.to_bytes(8, "little"),
        role,
    )
    return pae(b"antiphon/v1/authenticate", b"".join(fields))


async def _stranger(run: HubRun) -> tuple[Caller, bytes, pb.Challenge]:
    caller = await run.enter(run.new().owner)
    nonce = os.urandom(32)
    return caller, nonce, await caller.challenge(nonce)


@_theme.shows("LINK-1")
async def the_hub_signs_its_challenge(run: HubRun) -> None:
    """The hub signs the transcript of this client and nonce with the byte of its role."""
    caller, nonce, raw = await _stranger(run)
    prove(
        caller.key,
        nonce,
        challenge_of(raw),
        expected_server=caller.hub_key,
        certificate_digest=NO_CERTIFICATE,
        now_ms=now_ms(),
    )


@_theme.shows("LINK-2")
async def a_challenge_ends_within_15_minutes(run: HubRun) -> None:
    """A challenge, and so its ticket, ends 15 minutes later at most."""
    _, _, raw = await _stranger(run)
    left_ms = raw.expire_time_ms - now_ms()
    check(0 < left_ms <= TICKET_LIFETIME_MS + 1000, f"a challenge ends in {left_ms} ms")


@_theme.shows("LINK-1")
async def a_proof_needs_the_key_and_the_role(run: HubRun) -> None:
    """A proof by another key, with the hub's role, or of another nonce is PROOF_INVALID."""
    caller, nonce, raw = await _stranger(run)
    other = run.new().owner.key
    ours = transcript(caller, nonce, raw, CLIENT_ROLE)
    wrong_nonce = os.urandom(32)
    for name, sent_nonce, signature in (
        ("another key", nonce, other.sign(ours)),
        ("the hub's role", nonce, caller.key.sign(transcript(caller, nonce, raw, SERVER_ROLE))),
        ("the hub's own signature", nonce, raw.hub_signature),
        ("no signature", nonce, bytes(64)),
        (
            "a nonce the challenge is not for",
            wrong_nonce,
            caller.key.sign(transcript(caller, wrong_nonce, raw, CLIENT_ROLE)),
        ),
    ):
        found = await refusal(caller.answer(sent_nonce, raw, signature))
        equal(found.reason, "PROOF_INVALID", f"the reason for {name}")


@_theme.shows("LINK-1", "LINK-2")
async def a_proof_is_of_the_hubs_own_expiry(run: HubRun) -> None:
    """A proof of an expiry that the hub did not state is PROOF_INVALID."""
    caller, nonce, raw = await _stranger(run)
    for expire_time_ms in (raw.expire_time_ms - 1, raw.expire_time_ms + 3_600_000, now_ms() - 1):
        changed = pb.Challenge()
        changed.CopyFrom(raw)
        changed.expire_time_ms = expire_time_ms
        signature = caller.key.sign(transcript(caller, nonce, changed, CLIENT_ROLE))
        found = await refusal(caller.answer(nonce, changed, signature))
        equal(found.reason, "PROOF_INVALID", "the reason for a changed expiry")


@_theme.shows("LINK-1")
async def widths_are_checked(run: HubRun) -> None:
    """A key or nonce of another width than 32 bytes is PROOF_INVALID."""
    caller, _, _ = await _stranger(run)
    for key, nonce in ((caller.public[:31], bytes(32)), (caller.public, bytes(31)), (b"", b"")):
        request = pb.AuthenticateRequest(client_key=key, client_nonce=nonce)
        found = await refusal(caller.authenticate(request))
        equal(found.reason, "PROOF_INVALID", "the reason for a wrong width")


@_theme.shows("LINK-2")
async def every_call_needs_a_ticket(run: HubRun) -> None:
    """Without a ticket, with a changed one or one of another hub a call is TICKET_INVALID."""
    caller, _, _ = await _stranger(run)
    ((_, ticket),) = caller.metadata
    changed = bytes([*ticket[:-1], ticket[-1] ^ 1])
    for metadata in ((), ((TICKET_METADATA, b"x"),), ((TICKET_METADATA, changed),)):
        for name, call in _calls(caller, metadata):
            found = await refusal(call)
            equal(found.reason, "TICKET_INVALID", f"the reason of {name} without a ticket")
            equal(found.code, "UNAUTHENTICATED", f"the status of {name} without a ticket")


@_theme.shows("LINK-2")
async def a_ticket_is_of_its_key(run: HubRun) -> None:
    """A ticket in which any part was exchanged with another key's is TICKET_INVALID."""
    one, other = [await run.enter(run.new().owner) for _ in range(2)]
    ((_, ours),), ((_, theirs),) = one.metadata, other.metadata
    for at in range(8, len(ours), 8):
        mixed = ours[:at] + theirs[at:]
        if mixed not in (ours, theirs):
            call = one.sync.Hosts(pb.HostsRequest(), metadata=((TICKET_METADATA, mixed),))
            equal((await refusal(call)).reason, "TICKET_INVALID", "the reason for a mixed ticket")


def _calls(caller: Caller, metadata: Any) -> Iterator[tuple[str, Any]]:
    """Begin a call of each method, one after the other."""
    for name, request in (
        ("Push", pb.PushRequest()),
        ("Watch", pb.WatchRequest(conversation=bytes(32))),
        ("Fetch", pb.FetchRequest(conversation=bytes(32))),
        ("Hosts", pb.HostsRequest()),
        ("Resolve", pb.ResolveRequest(conversation=bytes(32))),
        ("Delete", pb.DeleteRequest(conversation=bytes(32))),
    ):
        yield name, getattr(caller.sync, name)(request, metadata=metadata)
    yield "Link", caller.sync.Link(iter(()), metadata=metadata)
    blob: dict[str, Any] = {"conversation": bytes(32), "digest": bytes(32)}
    yield "Stat", caller.blobs.Stat(blob_pb2.StatRequest(**blob), metadata=metadata)
    yield "Read", caller.blobs.Read(blob_pb2.ReadRequest(**blob), metadata=metadata)
    write = blob_pb2.WriteRequest(size_bytes=1, data=b"x", **blob)
    yield "Write", caller.blobs.Write(iter([write]), metadata=metadata)
    yield "Remove", caller.blobs.Remove(blob_pb2.RemoveRequest(**blob), metadata=metadata)


# --- the end of tickets and streams -------------------------------------------------------


async def _wait_for_the_end(run: HubRun, caller: Caller) -> None:
    left_s = (caller.expire_time_ms - now_ms()) / 1000
    await asyncio.sleep(run.allow(left_s + 0.2))


@_theme.shows("LINK-2", needs="--wait")
async def a_ticket_ends(run: HubRun) -> None:
    """A call with a ticket whose challenge has expired is TICKET_INVALID."""
    caller = await run.enter(run.new().owner)
    await caller.call("Hosts", pb.HostsRequest())
    await _wait_for_the_end(run, caller)
    found = await refusal(caller.call("Hosts", pb.HostsRequest()))
    equal(found.reason, "TICKET_INVALID", "the reason for an expired ticket")


@_theme.shows("LINK-28", needs="--wait")
async def a_stream_lasts_as_long_as_its_proof(run: HubRun) -> None:
    """A link ends with TICKET_INVALID unless its key is proved again on its connection."""
    owner = run.new().owner
    silent, renewed = await run.enter(owner), await run.enter(run.new().owner)
    lifetime_s = run.allow((silent.expire_time_ms - now_ms()) / 1000)
    links = [await greet(caller) for caller in (silent, renewed)]

    async def prove_again() -> None:
        await asyncio.sleep(lifetime_s / 2)
        await renewed.enter()
        await run.enter(owner)  # a proof on another connection

    ends = [_end_within(link, lifetime_s + LATE_S) for link in links]
    found, lasts, _ = await asyncio.gather(*ends, prove_again())
    equal(found, "TICKET_INVALID", "the reason of a link whose key was proved elsewhere alone")
    equal(lasts, None, "the reason of a link whose key was proved again on its connection")


async def _end_within(link: RawLink, seconds: float) -> str | None:
    """Send Pings on a link; return the reason of its end, None if it lasts longer."""
    reading = asyncio.create_task(link.end(seconds + PATIENCE_S))
    ends_at = now_ms() + seconds * 1000
    while not reading.done() and now_ms() < ends_at:
        await link.send(Ping(1))
        await asyncio.wait({reading}, timeout=min(1.0, seconds / 8))
    if reading.done():
        return reading.result()
    reading.cancel()
    return None
