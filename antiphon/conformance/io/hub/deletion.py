"""Cases of Delete, and of deleted conversations (LINK-9, chapter 04 §9)."""

from antiphon.conformance.cases import equal
from antiphon.conformance.io.calls import refusal
from antiphon.conformance.io.hub.blob_cases import write
from antiphon.conformance.io.hub.run import (
    TABLE,
    HubRun,
    entries_of,
    faults_of,
    greet,
    opened,
    push,
    reasons,
)
from antiphon.v1 import blob_pb2
from antiphon.v1 import sync_pb2 as pb
from replica.link import Close, Entries, Open

_theme = TABLE.theme("deletion")

DELETED = "CONVERSATION_DELETED"


@_theme.shows("LINK-9")
async def a_deleted_conversation_is_gone_for_anyone(run: HubRun) -> None:
    """After Delete every key gets CONVERSATION_DELETED, and no entry brings the log back."""
    history = run.new()
    history.say()
    owner = await run.push_all(history)
    stranger = await run.enter(run.new().owner)
    link = await opened(owner, history)
    found = await owner.call("Delete", pb.DeleteRequest(conversation=history.id))
    equal(found.entries, len(history.entries), "the number of entries deleted")
    closes = [m for m in await link.until_pong() if isinstance(m, Close)]
    equal([m.fault and m.fault.reason for m in closes], [DELETED], "the Closes of a deletion")
    for caller in (owner, stranger):
        asked = pb.ResolveRequest(conversation=history.id, id=history.genesis.id)
        equal((await refusal(caller.call("Resolve", asked))).reason, DELETED, "the reason")
        equal(await reasons(caller, *history.entries), [DELETED] * 2, "the outcomes of a Push")
        link = await greet(caller)
        await link.send(Entries(history.id, history.entries), Open(history.id, history.digest, ()))
        messages = await link.until_pong()
        equal({f.reason for f in faults_of(messages)}, {DELETED}, "the reasons on a link")
        equal(entries_of(messages), [], "the entries of a deleted conversation")


@_theme.shows("LINK-21", "LINK-9")
async def the_blobs_go_with_the_conversation(run: HubRun) -> None:
    """The blobs of a deleted conversation are served to nobody."""
    history = run.new()
    owner = await run.push_all(history)
    await write(owner, history, b"picture")
    await owner.call("Delete", pb.DeleteRequest(conversation=history.id))
    asked = blob_pb2.StatRequest(conversation=history.id, digest=bytes(32))
    equal((await refusal(owner.call("Stat", asked))).reason, DELETED, "the reason")
    other = run.new()
    await push(await run.enter(other.owner), *other.entries)
