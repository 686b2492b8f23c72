"""Cases of a hub that is killed and started again, by the command's --restart."""

import asyncio
import contextlib

import grpc

from antiphon.conformance.cases import check, equal
from antiphon.conformance.histories import History
from antiphon.conformance.io.calls import refusal
from antiphon.conformance.io.hub.blob_cases import DATA, digest_of, read, stat, write
from antiphon.conformance.io.hub.run import (
    TABLE,
    HubRun,
    acked,
    greet,
    opened,
    outcomes,
    push,
    resolve,
    the_fault,
)
from antiphon.v1 import sync_pb2 as pb
from replica.ids import EntryId
from replica.link import Ack, Entries, Open, Opened
from replica.log import Role

_theme = TABLE.theme("durability")


@_theme.shows("PROM-3", "LINK-15", "LINK-24", needs="--restart")
async def what_was_acked_is_there_after_a_kill(run: HubRun) -> None:
    """Entries that were acked, and outcomes that were durable, survive a kill in mid-traffic."""
    history = run.new()
    writer = history.writer("writer")
    history.grant(writer.public, Role.WRITER)
    owner = await run.push_all(history)
    link = await opened(owner, history)
    pusher = await run.enter(writer)
    promised: set[EntryId] = {entry.id for entry in history.entries}
    first = history.say("acked")
    await link.send(Entries(history.id, (first,)))
    await acked(link, first)
    promised.add(first.id)
    own = [history.say(f"link {n}") for n in range(40)]

    async def send() -> None:
        for entry in own:
            await link.send(Entries(history.id, (entry,)))

    async def read_acks() -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            while (message := await link.read()) is not None:
                if isinstance(message, Ack):
                    promised.update(message.ids)

    async def push_on() -> None:
        previous = history.genesis
        with contextlib.suppress(grpc.aio.AioRpcError):
            while True:
                previous = history.draw(by=writer, after=previous)
                found = await outcomes(pusher, [previous])
                promised.update(EntryId(o.id) for o in found if o.durable)

    tasks = [asyncio.create_task(work()) for work in (send, read_acks, push_on)]
    await asyncio.sleep(0.1)
    await run.kill()
    await asyncio.gather(*tasks)
    again = await run.enter(history.owner)
    lost = [
        entry_id.hex()[:12]
        for entry_id in promised
        if (await resolve(again, history, entry_id)).fate != pb.FATE_DURABLE
    ]
    equal(lost, [], "the list of acknowledged entries that a kill lost")


@_theme.shows("PROM-3", "LINK-9", "LINK-22", "LINK-35", needs="--restart")
async def deletions_blobs_and_members_survive_a_kill(run: HubRun) -> None:
    """After a kill deleted logs stay deleted, blobs whole, and strangers strangers."""
    kept, deleted = run.new(), run.new()
    reader = kept.writer("reader")
    kept.grant(reader.public, Role.READER)
    kept.say("kept")
    owner, other = await run.push_all(kept), await run.push_all(deleted)
    await write(owner, kept, DATA)
    await write(owner, kept, DATA[::-1], stop=1000)
    part = digest_of(DATA[::-1])
    await other.call("Delete", pb.DeleteRequest(conversation=deleted.id))
    await push(owner, kept.revoke(reader.public))
    hub_key = owner.hub_key
    await run.kill()
    stranger = await run.enter(run.new().owner)
    asked = [pb.ResolveRequest(conversation=one, id=bytes(32)) for one in (kept.id, bytes(32))]
    stored, unknown = [await refusal(stranger.call("Resolve", one)) for one in asked]
    equal(stored, unknown, "the refusal of a stranger for a stored conversation")
    owner, other = await run.enter(kept.owner), await run.enter(deleted.owner)
    equal(owner.hub_key, hub_key, "the hub's key after a restart")
    check(b"".join(await read(owner, kept, digest_of(DATA))) == DATA, "a blob was lost")
    committed = (await stat(owner, kept, part)).committed_bytes
    check(committed <= 1000, "more bytes are committed than were written")
    found = await refusal(
        other.call("Resolve", pb.ResolveRequest(conversation=deleted.id, id=bytes(32)))
    )
    equal(found.reason, "CONVERSATION_DELETED", "the reason after a restart")
    await _complete(run, kept)
    link = await greet(await run.enter(reader))
    await link.send(Open(kept.id, kept.digest))
    fault = the_fault(await link.until_pong())
    equal(fault.reason, "CONVERSATION_NOT_FOUND", "the reason for a key that was revoked")


async def _complete(run: HubRun, history: History) -> None:
    link = await greet(await run.enter(history.owner))
    await link.send(Open(history.id, history.digest))
    answer = await link.next_of(Opened)
    equal((answer.equal, answer.digest), (True, history.digest), "the digest after a restart")
