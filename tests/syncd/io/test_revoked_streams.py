"""No stream outlives the revocation of its reader (LINK-16)."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.v1 import blob_pb2, sync_pb2
from replica.errors import AntiphonError
from replica.ids import ConversationId
from replica.io.calls.call_end import typed_end
from replica.link.messages import Close, Credit, Entries, Fault, Hello, Listing, Open, Welcome
from replica.log import Grant, Member, Revocation, Role
from replica.log.digest import digest_of
from replica.refusals import StoreFull
from tests.support.callers import ServedHub, refused, serve_hub, until
from tests.support.writers import Writer

BIG = 400_000
STRANGER = Writer(9)
NOT_FOUND = "CONVERSATION_NOT_FOUND"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as built:
        await grant(built, Role.READER)
        for number in range(24):  # much more than gRPC keeps ahead of a reader
            await built.say(f"{number}" + "x" * BIG)
        yield built


async def grant(served: ServedHub, role: Role) -> None:
    entry = served.writer.write(
        served.id, Member(Grant(STRANGER.public, role)), parents=[served.genesis]
    )
    assert await served.owner.calls.push(served.id, (entry,)) == {entry.id: None}
    served.granted = entry


async def revoke(served: ServedHub) -> None:
    entry = served.writer.write(
        served.id, Member(Revocation(STRANGER.public)), parents=[served.granted]
    )
    assert await served.owner.calls.push(served.id, (entry,)) == {entry.id: None}


async def test_a_fetch_ends_with_the_reader_s_membership(served: ServedHub):
    request = sync_pb2.FetchRequest(
        conversation=served.id, ids=[entry.id for entry in served.entries]
    )
    call = served.stranger.sync.Fetch(request, metadata=served.stranger.metadata)
    assert (await call.read()).entries
    await revoke(served)
    assert await refused(call) == NOT_FOUND


async def test_a_watch_ends_with_the_reader_s_membership(served: ServedHub):
    request = sync_pb2.WatchRequest(conversation=served.id)
    call = served.stranger.sync.Watch(request, metadata=served.stranger.metadata)
    await call.read()
    await revoke(served)
    assert await refused(call) == NOT_FOUND


async def test_what_a_link_had_queued_is_withheld(served: ServedHub):
    link = served.stranger.link()
    opening = Open(served.id, digest_of(()), (), drafts=False)
    await link.send(Hello((1,)), opening)
    while not isinstance(await link.read(), Entries):
        pass
    await revoke(served)
    sent = len(served.entries)
    received = 1
    while not isinstance(message := await link.read(), Close):
        received += len(message.entries) if isinstance(message, Entries) else 0
    assert message.conversation == served.id
    assert message.fault is not None
    assert message.fault.reason == NOT_FOUND
    assert received < sent


async def test_a_list_that_a_link_had_queued_is_withheld(served: ServedHub):
    link = served.stranger.link()
    await link.send(Hello((1,), follow=True), Open(served.id, digest_of(()), (), drafts=False))
    await link.next_of(Welcome)
    (queued,) = served.hub.driver.hub.links.values()
    for _ in range(12):  # each makes the hub go on by a frame
        await link.send(Credit(100 * BIG))
    await until(lambda: queued.flow.sent_bytes > 10 * BIG)
    ended, unread = await begun(served, revokes=True), await begun(served)
    served.hub.driver.hub.disk_refused(frozenset({unread}), Fault.of(StoreFull()))
    last, listed = await begun(served), []
    while last not in listed:
        listed += [item.conversation for item in (await link.next_of(Listing)).items]
    assert not {ended, unread} & set(listed)
    await served.hub.driver.permitted(served.writer.public, unread)
    (item,) = (await link.next_of(Listing)).items  # of which the members are known again
    assert item.conversation == unread


async def begun(served: ServedHub, *, revokes: bool = False) -> ConversationId:
    """Begin a conversation that the stranger may read, or may read no more."""
    genesis = served.writer.genesis()
    conversation = ConversationId(genesis.id)
    reads = Member(Grant(STRANGER.public, Role.READER))
    entries = [genesis, served.writer.write(conversation, reads, parents=[genesis])]
    assert not any((await served.owner.calls.push(conversation, entries)).values())
    if revokes:
        left = Member(Revocation(STRANGER.public))
        entries.append(served.writer.write(conversation, left, parents=entries[-1:]))
        assert not any((await served.owner.calls.push(conversation, entries[-1:])).values())
    return conversation


async def test_a_blob_is_read_and_written_by_members_only_to_its_last_byte(served: ServedHub):
    data = bytes(8_000_000)
    digest = hashlib.sha256(data).digest()
    chunks = [data[at : at + 250_000] for at in range(0, len(data), 250_000)]

    async def written(first: int, last: int):
        for number in range(first, last):
            yield blob_pb2.WriteRequest(
                conversation=served.id, digest=digest, size_bytes=len(data), data=chunks[number]
            )

    await served.owner.blobs.Write(written(0, len(chunks)), metadata=served.owner.metadata)
    reading = served.stranger.blobs.Read(
        blob_pb2.ReadRequest(conversation=served.id, digest=digest),
        metadata=served.stranger.metadata,
    )
    assert (await reading.read()).data
    await grant(served, Role.WRITER)
    other = hashlib.sha256(b"other").digest()
    writing = served.stranger.blobs.Write(metadata=served.stranger.metadata)
    first = blob_pb2.WriteRequest(conversation=served.id, digest=other, size_bytes=5, data=b"o")
    with pytest.raises(AntiphonError) as ended:
        async with typed_end(writing):
            await writing.write(first)
            await revoke(served)
            await writing.write(blob_pb2.WriteRequest(data=b"ther"))
            await writing.done_writing()
            await writing
    assert ended.value.reason == NOT_FOUND
    assert await refused(reading) == NOT_FOUND
