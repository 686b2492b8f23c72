"""Attacks on a served hub by a peer that keeps no rule, and what each gets (SECURITY.md)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import grpc

from antiphon.v1 import sync_pb2 as pb
from replica.conversation.drafts import Draft
from replica.errors import AntiphonError
from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.limits import CLOCK_MAX
from replica.link.codec import encode_frame
from replica.link.messages import (
    Close,
    Credit,
    Entries,
    Fault,
    Hello,
    HostInfo,
    Ids,
    Message,
    Open,
    Opened,
    Ping,
    Pong,
    Welcome,
)
from replica.log import codec
from replica.log.body import Grant, Member, Revocation, Role
from replica.log.entry import Entry, entry_id, sign
from replica.refusals import EntriesMissing
from tests.support.callers import Caller, ServedHub, refused, serve_hub
from tests.support.writers import Writer, said

READER, WRITER, HOST, STRANGER, NOBODY = 2, 3, 4, 9, Digest(bytes(32))
ROLES = {READER: Role.READER, WRITER: Role.WRITER, HOST: Role.HOST}
HELLO = Hello((1,))


@dataclass
class Scene:
    """The conversation, and the keys that attack it."""

    served: ServedHub
    epoch: int = 100

    @property
    def id(self) -> ConversationId:
        return self.served.id

    @property
    def first(self) -> Entry:
        return self.served.genesis

    def pen(self, number: int) -> Writer:
        self.epoch += 1
        return Writer(number, epoch=self.epoch)

    def said(self, number: int, text: str = "x") -> Entry:
        return self.pen(number).write(self.id, said(text), parents=[self.first])

    def member(self, number: int, change: Grant | Revocation) -> Entry:
        return self.pen(number).write(self.id, Member(change), parents=[self.first])

    def forged(self, entry: Entry, number: int, **changes: object) -> Entry:
        """Change an entry's header, and let a key sign it."""
        header = replace(entry.header, **changes)  # type: ignore[arg-type]  # fields of any type
        data = codec.encode_header(header)
        signature = sign(data, Writer(number).key)
        return Entry(data, signature, entry.body, entry_id(data), header)

    def draft(self, request: EntryId) -> Draft:
        digest = Digest(b"d" * 32)
        return Draft(self.id, request, 1, 0, (1,), 0, b"x", digest, bytes(64))


Frames = Callable[[Scene], list[Message | bytes]]


def _entries(*entries: Entry) -> Entries:
    return Entries(entries[0].conversation, entries)


def _to_client(message: Message) -> bytes:
    return encode_frame(message, "to_client")


ATTACKS: list[tuple[str, int, Frames, set[str]]] = [
    ("open a known id", STRANGER, lambda s: [Open(s.id, NOBODY)], {"CONVERSATION_NOT_FOUND"}),
    ("open an unknown id", STRANGER,
     lambda _s: [Open(ConversationId(b"?" * 32), NOBODY)], {"CONVERSATION_NOT_FOUND"}),
    ("send ids of a known id", STRANGER, lambda s: [Ids(s.id, (s.first.id,))], set()),
    ("close a known id", STRANGER, lambda s: [Close(s.id)], set()),
    ("ask for a known entry by a fault", STRANGER,
     lambda s: [Fault.of(EntriesMissing(missing=[s.first.id]), s.id)], set()),
    ("draft in a known id", STRANGER, lambda s: [s.draft(s.first.id)], set()),
    ("message in a known id", STRANGER, lambda s: [_entries(s.said(STRANGER))],
     {"CONVERSATION_NOT_FOUND"}),
    ("genesis of another, and a grant to itself", STRANGER,
     lambda s: [_entries(s.first, s.member(STRANGER, Grant(Writer(STRANGER).public, Role.OWNER)))],
     {"CONVERSATION_NOT_FOUND"}),
    ("message", READER, lambda s: [_entries(s.said(READER))], {"ROLE_FORBIDS"}),
    ("revoke the owner", READER,
     lambda s: [_entries(s.member(READER, Revocation(Writer(1).public, ())))], {"ROLE_FORBIDS"}),
    ("grant itself the role of owner", WRITER,
     lambda s: [_entries(s.member(WRITER, Grant(Writer(WRITER).public, Role.OWNER)))], set()),
    ("revoke the owner ", WRITER,
     lambda s: [_entries(s.member(WRITER, Revocation(Writer(1).public, ())))], set()),
    ("write in the owner's name", WRITER,
     lambda s: [_entries(s.forged(s.said(1), WRITER))], {"SIGNATURE_INVALID"}),
    ("another's entry with another body", WRITER,
     lambda s: [_entries(replace(s.said(WRITER), body=b"0123456789abcdef"))],
     {"BODY_DIGEST_MISMATCH"}),
    ("a lamport far ahead", WRITER,
     lambda s: [_entries(s.forged(s.said(WRITER), WRITER, lamport=CLOCK_MAX))],
     {"LAMPORT_INVALID"}),
    ("a clock beyond the bound", WRITER,
     lambda s: [_entries(s.forged(s.said(WRITER), WRITER, lamport=CLOCK_MAX + 1))],
     {"FIELD_INVALID", "HEADER_MALFORMED"}),
    ("a position without those before it", WRITER,
     lambda s: [_entries(s.forged(s.said(WRITER), WRITER, seq=7))],
     {"SEQ_GAP", "FIELD_INVALID", "PREV_INVALID"}),
    ("an entry of another conversation", WRITER,
     lambda s: [Entries(s.id, (Writer(77).genesis(),))],
     {"CONVERSATION_MISMATCH", "FIELD_INVALID"}),
    ("a parent that nobody has", WRITER,
     lambda s: [_entries(s.forged(s.said(WRITER), WRITER, parents=(EntryId(b"p" * 32),)))],
     {"ENTRIES_MISSING"}),
    ("a draft of a request that is none", HOST, lambda s: [s.draft(s.first.id)], set()),
    ("its own grant twice, and a revocation by itself of the owner", HOST,
     lambda s: [_entries(s.member(HOST, Revocation(Writer(1).public, ())))] * 2, set()),
    ("garbage", READER, lambda _s: [b"\xff" * 100], {"FRAME_MALFORMED"}),
    ("an empty frame", READER, lambda _s: [b""], {"FRAME_MALFORMED"}),
    ("a frame of a byte too many", READER, lambda _s: [bytes(1_048_577)], {"FRAME_TOO_LARGE"}),
    ("a hub's Welcome", READER,
     lambda _s: [_to_client(Welcome(1, Writer(2).public, 1, 1, 1))],
     set()),
    ("a hub's Opened", READER, lambda s: [_to_client(Opened(s.id, NOBODY, True))], set()),
    ("a Ping that states more than was allowed", READER,
     lambda _s: [Ping(1, 2**63)], {"CREDIT_EXCEEDED"}),
    ("a Credit without end, then everything", READER,
     lambda s: [Credit(2**64 - 1), Open(s.id, NOBODY, ())], set()),
    ("a second Hello, of a host, with another's key", HOST,
     lambda _s: [Hello((1,), host=HostInfo(Writer(1).public, "", ()))], set()),
    ("a Hello again", READER, lambda _s: [Hello((1,), follow=True)] * 3, set()),
    ("a close of the conversation, then ids", READER,
     lambda s: [Open(s.id, NOBODY), Close(s.id), Ids(s.id, ())], set()),
]  # fmt: skip


async def _answers(caller: Caller, frames: list[Message | bytes]) -> set[str]:
    """Send frames; return the reasons of all faults that answer them."""
    link = caller.link()
    await link.send(HELLO)
    found: set[str] = set()
    try:
        for frame in frames:
            await link.call.write(
                frame if isinstance(frame, bytes) else encode_frame(frame, "to_hub")
            )
        await link.send(Ping(7))
        while (message := await link.read()) is not None:
            if isinstance(message, Pong) and message.nonce == 7:
                break
            fault = message if isinstance(message, Fault) else getattr(message, "fault", None)
            if fault is not None:
                found.add(fault.reason)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError, AntiphonError) as error:
        found.add(type(error).__name__)
    link.call.cancel()
    return found


async def test_no_attack_of_the_second_round_gets_more_than_its_refusal(tmp_path: Path) -> None:
    async with serve_hub(tmp_path) as served:
        scene = Scene(served)
        callers = {STRANGER: served.stranger}
        store = served.owner.calls._store
        for number, role in ROLES.items():
            grant = scene.member(1, Grant(Writer(number).public, role))
            assert await served.owner.calls.push(served.id, (grant,)) == {grant.id: None}
            callers[number] = await Caller(served.hub.address, store, Writer(number).key).enter()
        roles = served.hub.driver.hub.shelf[served.id].log.membership.roles
        outcome = {}
        for name, by, frames, expected in ATTACKS:
            got = await _answers(callers[by], frames(scene))
            if not (got == expected or (expected and got and got <= expected)):
                outcome[name] = got
        assert outcome == {}
        held = served.hub.driver.hub.shelf[served.id]
        assert held.log.membership.roles == roles
        await served.say("still here")
        for caller in callers.values():
            if caller is not served.stranger:
                await caller.calls.close()


async def test_no_call_of_the_second_round_gets_more_than_its_refusal(tmp_path: Path) -> None:
    async with serve_hub(tmp_path) as served:
        owner, head = served.owner, served.entries[-1]
        many = [pb.LaneHead(author=bytes(32), id=bytes(32))] * 8_193
        calls = {
            "Fetch of too many ids": owner.sync.Fetch(
                pb.FetchRequest(conversation=served.id, ids=[bytes(32)] * 8_193),
                metadata=owner.metadata,
            ),
            "Watch with too many heads": owner.sync.Watch(
                pb.WatchRequest(conversation=served.id, cursor=many), metadata=owner.metadata
            ),
            "Resolve with the ticket of another hub": owner.sync.Resolve(
                pb.ResolveRequest(conversation=served.id, id=head.id),
                metadata=(("antiphon-ticket-bin", bytes(72)),),
            ),
            "Delete by a stranger": served.stranger.sync.Delete(
                pb.DeleteRequest(conversation=served.id), metadata=served.stranger.metadata
            ),
        }
        reasons = [await refused(call) for call in calls.values()]
        assert reasons == [
            "ARGUMENT_INVALID", "FRAME_TOO_LARGE", "TICKET_INVALID", "CONVERSATION_NOT_FOUND",
        ]  # fmt: skip
        await served.say("still here")


async def test_a_host_can_t_greet_with_the_key_of_another(tmp_path: Path) -> None:
    """The first message of a link; a Welcome would name the owner's key as a host's."""
    async with serve_hub(tmp_path) as served:
        for info in (
            HostInfo(Writer(1).public, "127.0.0.1:1", ()),
            HostInfo(PublicKey(b""), "", ()),
        ):
            link = served.stranger.link()
            await link.send(Hello((1,), follow=True, host=info))
            closed = await link.read()
            assert isinstance(closed, Close)
            assert closed.fault is not None
            assert closed.fault.reason in ("ARGUMENT_INVALID", "FRAME_MALFORMED")
            assert await link.read() is None
        named = await served.owner.sync.Hosts(pb.HostsRequest(), metadata=served.owner.metadata)
        assert not named.hosts
        assert not served.hub.driver.hub.connected.hosts(lambda _key: True)
        await served.say("still here")
