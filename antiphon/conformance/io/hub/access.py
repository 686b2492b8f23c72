"""Cases of LINK-8 to LINK-10 and LINK-16: who gets which answer, at each delivery."""

import hashlib
from collections.abc import Iterator
from typing import Any

import grpc

from antiphon.conformance.cases import check, equal, wrong
from antiphon.conformance.histories import History
from antiphon.conformance.io.calls import END, Caller, RawLink, refusal, refusal_of
from antiphon.conformance.io.hub.run import (
    NOTHING,
    TABLE,
    HubRun,
    acked,
    entries_of,
    faults_of,
    fetch,
    greet,
    opened,
    outcomes,
    push,
    reasons,
    resolve,
    synced,
    the_fault,
)
from antiphon.conformance.writers import said
from antiphon.v1 import blob_pb2
from antiphon.v1 import sync_pb2 as pb
from replica.ids import ConversationId, EntryId
from replica.link import Close, Credit, Entries, Fault, Hello, Ids, Listing, Message, Open
from replica.log import Role

_theme = TABLE.theme("access")

NOT_FOUND = "CONVERSATION_NOT_FOUND"


async def _begun(run: HubRun, *roles: Role) -> tuple[History, Caller, list[Caller]]:
    """Push a conversation of a message and these members; return it, its owner and them."""
    history = run.new()
    members = [history.writer(f"member {n}") for n in range(len(roles))]
    for member, role in zip(members, roles, strict=True):
        history.grant(member.public, role)
    history.say("secret")
    owner = await run.push_all(history)
    return history, owner, [await run.enter(member) for member in members]


# --- strangers --------------------------------------------------------------------------


def _calls(caller: Caller, conversation: bytes, entry: bytes, blob: bytes) -> Iterator[Any]:
    """Begin each call about a conversation, one after the other."""
    sync, blobs, metadata = caller.sync, caller.blobs, caller.metadata
    yield sync.Resolve(pb.ResolveRequest(conversation=conversation, id=entry), metadata=metadata)
    yield sync.Fetch(pb.FetchRequest(conversation=conversation, ids=[entry]), metadata=metadata)
    yield sync.Watch(pb.WatchRequest(conversation=conversation), metadata=metadata)
    yield sync.Delete(pb.DeleteRequest(conversation=conversation), metadata=metadata)
    about: dict[str, Any] = {"conversation": conversation, "digest": blob}
    yield blobs.Stat(blob_pb2.StatRequest(**about), metadata=metadata)
    yield blobs.Read(blob_pb2.ReadRequest(**about), metadata=metadata)
    write = blob_pb2.WriteRequest(size_bytes=4, data=b"data", **about)
    yield blobs.Write(iter([write]), metadata=metadata)
    yield blobs.Remove(blob_pb2.RemoveRequest(**about), metadata=metadata)


@_theme.shows("LINK-9", "PROM-15", "LINK-21")
async def calls_of_a_stranger_show_nothing(run: HubRun) -> None:
    """Each call of a stranger ends as for a conversation that does not exist, word for word."""
    history, owner, _ = await _begun(run)
    blob = hashlib.sha256(b"data").digest()
    write = blob_pb2.WriteRequest(conversation=history.id, digest=blob, size_bytes=4, data=b"data")
    await owner.blobs.Write(iter([write]), metadata=owner.metadata)
    stranger = await run.enter(run.new().owner)
    entry, absent = history.last.id, bytes(range(32))
    there = [await refusal(call) for call in _calls(stranger, history.id, entry, blob)]
    nowhere = [await refusal(call) for call in _calls(stranger, absent, entry, blob)]
    equal([one.reason for one in nowhere], [NOT_FOUND] * 8, "the reasons for an unknown one")
    equal(there, nowhere, "the refusals of a stranger")


@_theme.shows("LINK-9", "PROM-15")
async def messages_of_a_stranger_show_nothing(run: HubRun) -> None:
    """Each message of a stranger's link is answered as for an unknown conversation."""
    history, _, _ = await _begun(run)
    other = run.new()
    other.say()
    stranger = await run.enter(run.new().owner)
    found = []
    for one in (history, other):  # the second is unknown to the hub
        link = await greet(stranger)
        await link.send(
            Open(one.id, NOTHING),
            Open(one.id, NOTHING, (), True),
            Entries(one.id, (one.last,)),
            Ids(one.id, (EntryId(one.genesis.id),)),
            Fault("ENTRIES_MISSING", conversation=one.id, missing=(one.last.id,)),
            Close(one.id),
        )
        found.append([_without_ids(message) for message in (await link.until_pong())[:-1]])
    equal(found[0], found[1], "the answers to a stranger")
    check(found[0], "a stranger's Open got no answer")
    kinds = {fault.reason for fault in faults_of(found[0])}
    equal(kinds, {NOT_FOUND}, "the reasons")


def _without_ids(message: Message) -> Message:
    """Return a fault without the ids that the stranger named itself."""
    if isinstance(message, Fault):
        return Fault(message.reason, message.detail, message.next_step, message.retryable)
    return message


@_theme.shows("LINK-9", "LINK-10", "LINK-80")
async def a_push_shows_a_stranger_nothing(run: HubRun) -> None:
    """A stranger's Push of entries that are held has the outcomes of one that is unknown."""
    history, _, _ = await _begun(run)
    other = run.new()
    other.say("secret")
    stranger = await run.enter(run.new().owner)
    for entries in (slice(1, None), slice(0, None), slice(0, 1)):
        there, nowhere = [
            [(o.durable, o.fault.reason, o.fault.detail) for o in found]
            for found in [
                await outcomes(stranger, one.entries[entries], one.id) for one in (history, other)
            ]
        ]
        equal(there, nowhere, "the outcomes of a stranger's Push")
        check(not any(durable for durable, _, _ in there), "a stranger's entry is durable")


@_theme.shows("LINK-10", "PROM-11")
async def a_member_restores_what_the_hub_lacks(run: HubRun) -> None:
    """A member that is not the owner sends a log from its genesis; the hub admits all of it."""
    history = run.new()
    writer = history.writer("writer")
    history.grant(writer.public, Role.WRITER)
    history.say("one")
    history.say("two", writer)
    caller = await run.enter(writer)
    link = await greet(caller)
    await link.send(Open(history.id, history.digest, history.held.log.heads()))
    fault = the_fault(await link.until_pong())
    equal(fault.reason, NOT_FOUND, "the reason for a conversation that the hub lacks")
    await link.send(Entries(history.id, history.entries))
    await acked(link, *history.entries)
    for one in (writer, history.owner):
        await opened(await run.enter(one), history)


@_theme.shows("LINK-10", "TRUST-2")
async def a_stranger_becomes_a_member_by_the_grant_it_brings(run: HubRun) -> None:
    """A key whose grant the hub lacks sends the log with it, and is a member from then on."""
    history, owner, _ = await _begun(run)
    newcomer = history.writer("newcomer")
    caller = await run.enter(newcomer)
    grant = history.grant(newcomer.public, Role.WRITER)
    hello = history.say("hello", newcomer)
    link = await greet(caller)
    await link.send(Entries(history.id, (grant, hello)))
    fault = the_fault(await link.until_pong())
    equal(fault.reason, NOT_FOUND, "the reason for a stranger's entries without the genesis")
    await link.send(Entries(history.id, history.entries))
    await acked(link, *history.entries)
    equal((await resolve(owner, history, hello.id)).fate, pb.FATE_DURABLE, "the fate")


# --- roles ------------------------------------------------------------------------------


@_theme.shows("TRUST-2")
async def the_log_says_who_reads_and_who_writes(run: HubRun) -> None:
    """A reader reads and cannot write or delete; a writer writes; neither deletes."""
    history, owner, (reader, writer) = await _begun(run, Role.READER, Role.WRITER)
    for member in (reader, writer):
        await opened(member, history)
        call = member.sync.Delete(
            pb.DeleteRequest(conversation=history.id), metadata=member.metadata
        )
        equal((await refusal(call)).reason, "ROLE_FORBIDS", "the reason of a Delete by no owner")
    entry = history.draw(by=history.writer("member 0"))
    equal(await reasons(reader, entry), ["ROLE_FORBIDS"], "the outcome of a reader's message")
    await push(writer, history.say("by a writer", history.writer("member 1")))
    await opened(owner, history)


@_theme.shows("LINK-16", "LINK-9")
async def a_revoked_link_is_closed(run: HubRun) -> None:
    """A key that is revoked gets a Close of the conversation, and nothing of it from then on."""
    history, owner, (member, other) = await _begun(run, Role.WRITER, Role.READER)
    link, still = await opened(member, history), await opened(other, history)
    secret = [history.revoke(member.public), history.say("after the revocation")]
    await push(owner, *secret)
    equal(len(entries_of(await still.until_pong())), 2, "the number of entries a reader got")
    found = await link.until_pong()
    shown = set(entries_of(found)) & {secret[1].id}
    equal(shown, set(), "the entries behind its revocation that a key got")
    closes = [m for m in found if isinstance(m, Close)]
    equal([(m.conversation, m.fault and m.fault.reason) for m in closes],
          [(history.id, NOT_FOUND)], "the Closes")  # fmt: skip
    await link.send(Open(history.id, history.digest))
    fault = the_fault(await link.until_pong(8))
    equal(fault.reason, NOT_FOUND, "the reason for an Open of a revoked key")


@_theme.shows("LINK-16")
async def a_revoked_watch_ends(run: HubRun) -> None:
    """The Watch of a key that is revoked ends with CONVERSATION_NOT_FOUND, before later entries."""
    history, owner, (member,) = await _begun(run, Role.READER)
    request = pb.WatchRequest(conversation=history.id)
    stream = member.sync.Watch(request, metadata=member.metadata)
    while (await stream.read()).WhichOneof("event") != "hint":
        pass
    secret = [history.revoke(member.public), history.say("after the revocation")]
    await push(owner, *secret)
    try:
        while (response := await stream.read()) is not END:
            got = [bytes(e.header) for e in response.entries.entries]
            check(secret[1].header_bytes not in got, "an entry behind the revocation was sent")
    except grpc.aio.AioRpcError as error:
        equal(refusal_of(error).reason, NOT_FOUND, "the reason of a revoked Watch")
        return
    wrong("a Watch of a revoked key ended without a reason")


@_theme.shows("LINK-16", "LINK-21")
async def a_revoked_reader_of_a_blob_gets_no_more_of_it(run: HubRun) -> None:
    """The Read of a blob ends at the piece before which its reader was revoked."""
    history, owner, (member,) = await _begun(run, Role.READER)
    piece = bytes(256 * 1024)
    data = piece * 64
    blob = hashlib.sha256(data).digest()
    first = blob_pb2.WriteRequest(conversation=history.id, digest=blob, size_bytes=len(data))
    pieces = [first, *([blob_pb2.WriteRequest(data=piece)] * 64)]
    await owner.blobs.Write(iter(pieces), metadata=owner.metadata)
    request = blob_pb2.ReadRequest(conversation=history.id, digest=blob)
    stream = member.blobs.Read(request, metadata=member.metadata)
    await stream.read()
    await push(owner, history.revoke(member.public))
    equal((await refusal(stream)).reason, NOT_FOUND, "the reason of a revoked Read")


@_theme.shows("LINK-16")
async def a_long_answer_ends_with_the_membership(run: HubRun) -> None:
    """A link that has yet to get the rest of a long log gets no more of it once revoked."""
    history, owner, (member,) = await _begun(run, Role.READER)
    big = [history.write(said(chr(97 + n) * 400_000)) for n in range(9)]
    for entry in big:
        await push(owner, entry)
    link = await greet(member)
    await link.send(Open(history.id, NOTHING, ()))
    first = entries_of(await link.until_pong())
    await push(owner, history.revoke(member.public))
    await link.send(Credit(64 * 1024 * 1024))
    rest = entries_of(await link.until_pong(8))
    check(len(first) + len(rest) < len(history.entries) - 1, "a revoked key got the whole log")


# --- listings -----------------------------------------------------------------------------


async def _listed(link: RawLink, nonce: int = 7) -> list[ConversationId]:
    found = await link.until_pong(nonce)
    return [item.conversation for m in found if isinstance(m, Listing) for item in m.items]


@_theme.shows("LINK-8")
async def a_follower_is_listed_its_conversations_and_new_ones(run: HubRun) -> None:
    """A link that follows is listed the conversations of its key, and each new one, once."""
    history, owner, (member,) = await _begun(run, Role.READER)
    link = await greet(member, Hello((1,), follow=True))
    equal(await _listed(link), [history.id], "the conversations listed at first")
    another = run.new()
    await push(owner, history.say("no new conversation"))
    other_owner = await run.push_all(another)
    equal(await _listed(link, 8), [], "the conversations listed to no member of them")
    await push(other_owner, another.grant(member.public, Role.READER))
    equal(await _listed(link, 9), [another.id], "the conversations listed after a grant")
    silent = await greet(member)
    equal(await _listed(silent), [], "the conversations listed to a link that does not follow")


@_theme.shows("LINK-8", "LINK-9")
async def a_revoked_key_is_listed_nothing(run: HubRun) -> None:
    """A conversation that revoked a key is not listed to it."""
    history, owner, (member,) = await _begun(run, Role.READER)
    await push(owner, history.revoke(member.public))
    link = await greet(member, Hello((1,), follow=True))
    equal(await _listed(link), [], "the conversations listed to a revoked key")


@_theme.shows("LINK-9")
async def an_entry_of_another_conversation_is_not_shown(run: HubRun) -> None:
    """A member of one conversation gets no entry of another through it."""
    history, owner, _ = await _begun(run)
    other, _, _ = await _begun(run)
    equal((await resolve(owner, history, other.last.id)).fate, pb.FATE_UNKNOWN, "the fate")
    responses = await fetch(owner, history.id, ids=[other.last.id])
    equal([e for r in responses for e in r.entries], [], "the entries of another conversation")
    equal(list(responses[-1].absent), [other.last.id], "the absent ids")
    link = await synced(owner, history, *history.entries)
    await link.send(Fault("ENTRIES_MISSING", conversation=history.id, missing=(other.last.id,)))
    equal(entries_of(await link.until_pong()), [], "the entries sent for ENTRIES_MISSING")
