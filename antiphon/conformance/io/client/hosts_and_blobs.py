"""The choice of a host for a new conversation, and blobs that are not what they should be."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from antiphon.conformance.cases import check, equal
from antiphon.conformance.io.client.session import Session, theme
from replica.ids import ConversationId
from replica.link import Entries, HostInfo, LinkedHost, Message, Welcome
from replica.log import Grant, Kind, Member, Role

_begins = theme("begins")
_blobs = theme("blobs")
DATA = bytes(range(256)) * 2_048  # two pieces


def _name_hosts(s: Session, **vouched: bool) -> None:
    """Let the Welcome name hosts, and whether the hub vouches for them."""
    hosts = tuple(
        LinkedHost(HostInfo(s.entries.public(name), "", ()), is_vouched)
        for name, is_vouched in vouched.items()
    )

    def changed(message: Message) -> Iterable[Message]:
        return (replace(message, hosts=hosts),) if isinstance(message, Welcome) else (message,)

    s.hub.outgoing = changed


async def _greeted(s: Session) -> None:
    """Wait until the client knows the hosts of the Welcome."""
    await s.until(lambda status: status["linked"], "linked")


@_begins("LINK-31")
async def without_a_vouched_host(s: Session) -> None:
    """A client that knows no host begins nothing with one that merely links."""
    _name_hosts(s, mallory=False)
    await s.connect()
    await _greeted(s)
    answer = await s.tries("begin")
    equal(answer.get("error"), "NO_HOST", "the error of begin")
    await s.barrier()
    equal(s.sent(Entries), [], "the entries that it sends")


@_begins("LINK-30", "LINK-31")
async def with_a_vouched_host(s: Session) -> None:
    """A client grants HOST to the first host that the hub vouches for, and to no other."""
    _name_hosts(s, hal=True, ida=True, mallory=False)
    await s.connect()
    await _greeted(s)
    begun = ConversationId(bytes.fromhex((await s.ask("begin"))["conversation"]))

    def grants() -> list[Grant]:
        held = s.hub.core.shelf.get(begun)
        if held is None:
            return []
        of_members = [e for e in held.log.entries.values() if e.header.kind == Kind.MEMBER]
        bodies = [held.log.body(entry.id) for entry in of_members]
        return [b.change for b in bodies if isinstance(b, Member) and isinstance(b.change, Grant)]

    await s.sees(grants, "grant")
    await s.barrier()
    hosts = [grant.key for grant in grants() if grant.role == Role.HOST]
    equal(hosts, [s.entries.public("hal")], "the hosts that are granted the role")


@_blobs("LINK-23")
async def whole(s: Session) -> None:
    """A blob whose bytes have its digest is read."""
    await s.joined()
    answer = await _read(s, DATA)
    equal(answer.get("data"), DATA.hex(), "the bytes of a blob")


@_blobs("LINK-23")
async def rotten(s: Session) -> None:
    """A blob of which a byte changed is refused."""
    await s.joined()
    answer = await _read(s, DATA[:-1] + b"?")
    check("error" in answer, "the client accepts bytes that have another digest")


@_blobs("LINK-23")
async def cut_short(s: Session) -> None:
    """A blob that ends too early is refused."""
    await s.joined()
    answer = await _read(s, DATA[: len(DATA) // 2])
    check("error" in answer, "the client accepts a part of a blob")


async def _read(s: Session, served: bytes) -> dict[str, str]:
    """Let the client read the blob of DATA, while the hub serves other bytes."""
    digest = hashlib.sha256(DATA).digest()
    s.hub.blobs[digest] = served
    return await s.tries("read", digest=digest.hex())
