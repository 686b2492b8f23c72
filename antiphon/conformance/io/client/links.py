"""Proofs, greetings, heartbeats, credit and the ends of links, as a client meets them."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from antiphon.conformance.cases import check, equal
from antiphon.conformance.io.client import session
from antiphon.conformance.io.client.session import Session, theme
from antiphon.conformance.io.core import VECTORS
from antiphon.v1 import sync_pb2 as pb
from replica import limits
from replica.ids import ConversationId
from replica.limits import FRAME_BYTES_MAX
from replica.link import (
    Close,
    Credit,
    Entries,
    Hello,
    Message,
    Open,
    Opened,
    Ping,
    Pong,
    Welcome,
)
from replica.refusals import HubUnreachable, Unauthenticated

_case = theme("links")
QUIET_S = 0.7
"""Time in which a wrong client would have gone on, in seconds."""


def _welcome(s: Session, **fields: Any) -> None:
    """Change fields of the Welcome."""

    def changed(message: Message) -> Iterable[Message]:
        return (replace(message, **fields),) if isinstance(message, Welcome) else (message,)

    s.hub.outgoing = changed


@_case("LINK-1", "LINK-3")
async def greeting(s: Session) -> None:
    """A client proves its key, and greets with Hello and the version."""
    s.hub.hold(s.entries.conversation, s.all())
    await s.connect()
    await s.sees(lambda: s.hub.frames, "frame")
    first = s.hub.frames[0].message
    check(isinstance(first, Hello), "the first message is no Hello")
    equal([m.versions for m in s.sent(Hello)], [(1,)], "the versions of its Hellos")


@_case("LINK-1")
async def wrong_signature(s: Session) -> None:
    """A hub whose signature is wrong gets no signature of the client."""

    def change(response: pb.AuthenticateResponse) -> None:
        response.challenge.hub_signature = bytes(64)

    s.hub.challenge = change
    await _unproved(s)


@_case("LINK-1")
async def expired_challenge(s: Session) -> None:
    """A challenge that has expired is not signed."""

    def change(response: pb.AuthenticateResponse) -> None:
        response.challenge.expire_time_ms = 1_000

    s.hub.challenge = change
    await _unproved(s)


@_case("LINK-1")
async def wrong_certificate(s: Session) -> None:
    """A challenge with the digest of another certificate is not signed."""

    def change(response: pb.AuthenticateResponse) -> None:
        response.challenge.certificate_digest = bytes([7]) * 32

    s.hub.challenge = change
    await _unproved(s)


@_case("LINK-1")
async def short_nonce(s: Session) -> None:
    """A challenge whose nonce has 31 bytes is not signed, though the hub signed it."""

    def change(response: pb.AuthenticateResponse) -> None:
        response.challenge.hub_nonce = response.challenge.hub_nonce[:31]

    s.hub.challenge = change
    await _unproved(s)


@_case("LINK-1", "ENT-6")
async def small_order_key(s: Session) -> None:
    """A hub whose key is a point of small order, under which anybody signs, proves nothing."""
    vectors = json.loads((VECTORS / "proof.json").read_text())["vectors"]
    (forged,) = [v for v in vectors if v["name"] == "small-order"]

    def change(response: pb.AuthenticateResponse) -> None:
        response.challenge.hub_key = bytes.fromhex(forged["hub_key"])
        response.challenge.hub_signature = bytes.fromhex(forged["hub_signature"])

    s.hub.challenge = change
    await _unproved(s)


async def _unproved(s: Session) -> None:
    await s.connect()
    await s.until(lambda status: bool(status["error"]), "told why there is no link")
    equal((s.hub.proofs, len(s.hub.links)), (0, 0), "the proofs and links of the client")


@_case("TRUST-4")
async def other_hub(s: Session) -> None:
    """A hub with another key than the pinned one gets no signature of the client."""
    await s.joined()
    proofs = s.hub.proofs
    s.hub.become()
    s.hub.end()
    # Between two attempts a client may say that the first stream has ended.
    refused = ("PEER_IDENTITY_CHANGED", "PROOF_INVALID")
    await s.until(
        lambda status: not status["linked"] and status["error"] in refused,
        f"without a link because of {' or '.join(refused)}",
    )
    await asyncio.sleep(QUIET_S)
    equal((s.hub.proofs, len(s.hub.links)), (proofs, 1), "the proofs and links of the client")


@_case("TRUST-3", "TRUST-20")
async def off_loopback(s: Session) -> None:
    """A client makes no call to an address off loopback whose hub's key it does not know."""
    calls: list[pb.AuthenticateResponse] = []
    s.hub.challenge = calls.append
    s.hub.hold(s.entries.conversation, s.all())
    port = s.address.rpartition(":")[2]
    await s.connect(address=f"0.0.0.0:{port}")  # another name of this machine
    found = await s.until(lambda status: status["error"] or status["linked"], "linked or refusing")
    equal((len(calls), len(s.hub.links)), (0, 0), "the calls and links of the client")
    refused = ("HUB_KEY_UNKNOWN", "TLS_REQUIRED")
    wanted = " or ".join(refused)
    check(found["error"] in refused, f"the error is {found['error']}, must be {wanted}")


@_case("TRUST-4")
async def other_hub_after_a_restart(s: Session) -> None:
    """The pinned key is kept with the store."""
    await s.joined()
    proofs = s.hub.proofs
    s.hub.become()
    await s.connect(keep=True)
    await s.until(lambda status: bool(status["error"]), "told why there is no link")
    equal(s.hub.proofs, proofs, "the proofs of the client")


@_case("LINK-3")
async def unknown_version(s: Session) -> None:
    """A Welcome with a version that the client does not know ends the link."""
    _welcome(s, version=9)
    s.hub.hold(s.entries.conversation, s.all())
    await s.connect()
    await s.sees(lambda: s.hub.links and s.hub.links[0].has_ended, "end of the link")
    opened = [m for m in s.hub.links[0].frames if isinstance(m.message, Open)]
    equal(len(opened), 0, "the number of conversations it opened")


@_case("LINK-3")
async def nothing_before_a_welcome(s: Session) -> None:
    """A message before the Welcome ends the link."""
    s.hub.hold(s.entries.conversation, s.all())
    digest = s.entries.digest(s.base)

    def early(message: Message) -> Iterable[Message]:
        if isinstance(message, Welcome) and len(s.hub.links) == 1:
            return (Opened(s.entries.conversation, digest, equal=True), message)
        return (message,)

    s.hub.outgoing = early
    await s.connect()
    await s.linked(2)
    await s.synchronized()


@_case("LINK-7")
async def heartbeats(s: Session) -> None:
    """A client sends Ping every third of the hub's idle time-out."""
    _welcome(s, idle_timeout_ms=3_000)
    await s.joined()
    began = asyncio.get_running_loop().time()
    await s.sees(lambda: len(s.sent(Ping)) >= 2, "second Ping")
    took = asyncio.get_running_loop().time() - began
    check(took < 2 * 3.0, f"two Pings took {took:.1f} s, so that a hub would end the link")


@_case("LINK-7")
async def silent_hub(s: Session) -> None:
    """A client that receives nothing for 60 s ends the link, and links again."""
    await s.joined()
    s.hub.outgoing = lambda _message: ()
    limit_s = limits.IDLE_TIMEOUT_S + session.PATIENCE_S
    await s.sees(lambda: len(s.hub.links) >= 2, "link number 2", limit_s)


@_case("REC-5")
async def digests_with_heartbeats(s: Session) -> None:
    """A client that is idle compares digests again with each heartbeat."""
    _welcome(s, idle_timeout_ms=3_000)
    await s.joined()
    seen = len(s.hub.frames)
    await s.sees(lambda: len(s.sent(Ping, seen)) >= 2, "second Ping")
    await s.sees(lambda: s.sent(Open, seen), "Open")
    check(s.sent(Open, seen)[0].heads is None, "it compares heads, though nothing changed")


@_case("LINK-5", "LINK-7")
async def counted_bytes(s: Session) -> None:
    """A Ping names the bytes of counted frames that were sent."""
    _welcome(s, idle_timeout_ms=3_000)
    await s.joined()
    await s.append()
    await s.synchronized()
    await s.sees(lambda: s.sent(Ping), "Ping")
    before = next(n for n, seen in enumerate(s.hub.frames) if isinstance(seen.message, Ping))
    counted = sum(
        seen.frame_bytes for seen in s.hub.frames[:before] if isinstance(seen.message, Entries)
    )
    if before > 0 and counted:
        equal(s.sent(Ping)[0].sent_bytes, counted, "the bytes that a Ping names")


@_case("LINK-5")
async def credit_after_a_pong(s: Session) -> None:
    """A client answers a Pong with its limit."""
    await s.joined()
    await s.barrier()
    check(s.sent(Credit)[-1].limit_bytes >= FRAME_BYTES_MAX, "the limit is less than a frame")


@_case("LINK-4")
async def credit(s: Session) -> None:
    """A client begins no counted frame beyond the hub's limit, and goes on with more."""
    limit = 700
    _welcome(s, credit_bytes=limit)
    await s.joined()
    for number in range(5):
        await s.append(f"Message {number}.")
    await s.barrier(limit)
    begun = 0
    for seen in s.hub.frames:
        if isinstance(seen.message, Entries):
            check(begun < limit, f"a frame begins after {begun} of {limit} bytes")
            begun += seen.frame_bytes
    s.hub.send(Credit(2**21))
    await s.synchronized()


@_case("LINK-4")
async def limit_never_shrinks(s: Session) -> None:
    """A Credit or Pong with a smaller limit than one before it changes nothing."""
    await s.joined()
    s.hub.send(Credit(0))
    await s.barrier(0)
    for text in ("first", "second"):
        await s.append(text)
        await s.synchronized()


@_case("LINK-3")
async def later_greeting(s: Session) -> None:
    """A second Welcome has no effect, whatever it says."""
    greetings: list[Welcome] = []

    def noted(message: Message) -> Iterable[Message]:
        greetings.extend([message] if isinstance(message, Welcome) else [])
        return (message,)

    s.hub.outgoing = noted
    await s.joined()
    s.hub.send(replace(greetings[0], version=9, credit_bytes=0, idle_timeout_ms=1))
    await s.barrier(0)
    await s.append()
    await s.synchronized()
    equal(len(s.hub.links), 1, "the number of links")


@_case("LINK-6")
async def malformed_frame(s: Session) -> None:
    """A frame that does not parse ends the link; the client links again."""
    await s.joined()
    s.hub.send_bytes(b"\x0a\xff\xff")
    await s.linked(2)
    await s.synchronized()


@_case("LINK-6")
async def large_frame(s: Session) -> None:
    """A frame of more than 1 MiB ends the link; the client links again."""
    await s.joined()
    unknown = pb.LinkResponse(credit=pb.Credit(limit_bytes=1)).SerializeToString()
    s.hub.send_bytes(unknown + b"\xfa\x07\x80\x80\x40" + bytes(2**20))
    await s.linked(2)
    await s.synchronized()


@_case("LINK-6")
async def unknown_message(s: Session) -> None:
    """A frame without a message of this version ends the link; the client links again."""
    await s.joined()
    s.hub.send_bytes(b"\xfa\x06\x00")  # field 111, empty
    await s.linked(2)
    await s.synchronized()


@_case("LINK-12", "PROM-4")
async def unavailable(s: Session) -> None:
    """A client whose stream ends links again, and sends the entries that are not acked."""
    await s.joined()
    s.hub.passes = lambda message: not isinstance(message, Entries)
    await s.append()
    await s.sees(lambda: s.sent(Entries), "Entries")
    s.hub.passes = lambda _message: True
    s.hub.end(HubUnreachable("the hub restarts"))
    await s.linked(2)
    await s.synchronized()


@_case("LINK-12")
async def ends_without_a_reason(s: Session) -> None:
    """A client whose stream ends without a status links again."""
    await s.joined()
    s.hub.end()
    await s.linked(2)
    await s.synchronized()


@_case("LINK-2", "LINK-28")
async def ticket_expired(s: Session) -> None:
    """A client whose ticket is refused proves its key again."""
    await s.joined()
    proofs = s.hub.proofs
    s.hub.end(Unauthenticated())
    await s.linked(2)
    check(s.hub.proofs > proofs, "the client links again without a new proof")
    await s.synchronized()


@_case("LINK-16")
async def closed(s: Session) -> None:
    """A conversation that the hub closes is synchronized no more."""
    await s.joined()
    s.hub.send(Close(s.entries.conversation))
    await s.until(lambda status: not status["synchronized"], "offline")


@_case("LINK-13")
async def unknown_conversation(s: Session) -> None:
    """Messages about a conversation that was not opened change nothing."""
    await s.joined()
    other = ConversationId(bytes([9]) * 32)
    s.hub.send(Opened(other, s.held.log.digest, equal=True), Close(other), Pong(0, 0, 2**21))
    await s.barrier()
    await s.append()
    await s.synchronized()
    equal(len(s.hub.links), 1, "the number of links")
