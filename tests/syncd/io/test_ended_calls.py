"""What a call holds is freed when it ends, without a pass of the garbage collector (D518)."""

import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import grpc
import pytest

from antiphon.v1 import blob_pb2, sync_pb2
from replica.errors import AntiphonError
from replica.io.calls.call_end import typed_end
from replica.link import Link
from replica.link.messages import Entries, Hello, Open
from replica.log import Grant, Member, Role
from replica.log.digest import digest_of
from syncd.io.outbox import Outbox
from tests.support.callers import ServedHub, refused, serve_hub, until
from tests.support.writers import Writer

BIG = 400_000
STRANGER = Writer(9)


@pytest.fixture
def no_passes() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as built:
        grant = Member(Grant(STRANGER.public, Role.READER))
        entry = built.writer.write(built.id, grant, parents=[built.genesis])
        assert await built.owner.calls.push(built.id, (entry,)) == {entry.id: None}
        for number in range(8):  # more than gRPC keeps ahead of a reader
            await built.say(f"{number}" + "x" * BIG)
        yield built


async def _cancelled_link(served: ServedHub) -> None:
    link = served.stranger.link()
    await link.send(Hello((1,)), Open(served.id, digest_of(()), (), drafts=False))
    while not isinstance(await link.read(), Entries):
        pass
    link.cancel()


async def _closed_link(served: ServedHub) -> None:
    link = served.stranger.link()
    await link.send(Hello((1,)), Open(served.id, digest_of(()), (), drafts=False))
    while not isinstance(await link.read(), Entries):
        pass
    await link.call.done_writing()
    while await link.call.read():
        pass


async def _cancelled_watch(served: ServedHub) -> None:
    request = sync_pb2.WatchRequest(conversation=served.id)
    call = served.stranger.sync.Watch(request, metadata=served.stranger.metadata)
    await call.read()
    call.cancel()


async def _cancelled_fetch(served: ServedHub) -> None:
    ids = [entry.id for entry in served.entries]
    request = sync_pb2.FetchRequest(conversation=served.id, ids=ids)
    call = served.stranger.sync.Fetch(request, metadata=served.stranger.metadata)
    await call.read()
    call.cancel()


async def _refused_call(served: ServedHub) -> None:
    request = sync_pb2.ResolveRequest(conversation=bytes(32), id=bytes(32))
    call = served.stranger.sync.Resolve(request, metadata=served.stranger.metadata)
    assert await refused(call) == "CONVERSATION_NOT_FOUND"


async def _refused_blob(served: ServedHub) -> None:
    call = served.stranger.blobs.Write(metadata=served.stranger.metadata)
    with pytest.raises(AntiphonError):
        async with typed_end(call):
            # It has no name here, which the error's traceback would keep.
            await call.write(blob_pb2.WriteRequest(conversation=bytes(32), data=bytes(BIG)))
            await call


def alive() -> list[object]:
    """Return the links, queues and errors of refused calls that exist."""
    kinds = Link | Outbox | grpc.aio.AbortError | blob_pb2.WriteRequest
    # Not by isinstance, which asks objects of other libraries for their class.
    return [one for one in gc.get_objects() if issubclass(type(one), kinds)]


@pytest.mark.parametrize(
    "call",
    [
        _cancelled_link,
        _closed_link,
        _cancelled_watch,
        _cancelled_fetch,
        _refused_call,
        _refused_blob,
    ],
)
async def test_an_ended_call_leaves_nothing(
    served: ServedHub,
    call: Callable[[ServedHub], Awaitable[None]],
    no_passes: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = len(alive())
    await call(served)
    await served.stranger.enter()  # gRPC keeps the last call that it accepted
    await until(lambda: not served.hub.driver.hub.links)
    await until(lambda: len(alive()) <= before)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
