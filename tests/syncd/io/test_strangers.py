"""A stranger learns nothing from the cost of an answer, and a peer nothing of the disk."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.v1 import blob_pb2, sync_pb2
from replica.ids import Digest, PublicKey
from replica.link.messages import Close, Entries, Hello, Open
from replica.log import Grant, Member, Role, entry_to_pb
from replica.log.entry import Entry, verify
from tests.support.callers import ServedHub, refused, serve_hub
from tests.support.writers import Writer, said

STRANGER = Writer(9)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as built:
        yield built


@pytest.mark.parametrize("is_known", [False, True], ids=["unknown", "known"])
async def test_a_stranger_s_push_verifies_nothing_whether_the_id_is_known_or_not(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch, is_known: bool
):
    genesis: Entry = served.genesis if is_known else Writer(77).genesis()
    grants = [
        STRANGER.write(
            genesis.conversation,
            Member(Grant(Writer(100 + number).public, Role.READER)),
            parents=[genesis],
        )
        for number in range(5)
    ]
    request = sync_pb2.PushRequest(
        conversation=genesis.conversation, entries=map(entry_to_pb, grants)
    )
    verified: list[bytes] = []

    def counted(key: PublicKey, signature: bytes, message: bytes) -> None:
        verified.append(key)
        verify(key, signature, message)

    monkeypatch.setattr("replica.log.entry.verify", counted)
    response = await served.stranger.sync.Push(request, metadata=served.stranger.metadata)
    assert {o.fault.reason for o in response.outcomes} == {"CONVERSATION_NOT_FOUND"}
    assert verified == []


async def test_an_error_of_the_disk_names_no_path(served: ServedHub, tmp_path: Path):
    (tmp_path / "hub" / "blobs").write_bytes(b"a file where the folder should be")
    request = blob_pb2.WriteRequest(
        conversation=served.id, digest=bytes(32), size_bytes=10, data=b"x"
    )

    async def requests():
        yield request

    async def write():
        await served.owner.blobs.Write(requests(), metadata=served.owner.metadata)

    with pytest.raises(Exception) as caught:  # its text is what counts
        await write()
    assert str(tmp_path) not in str(caught.value)
    assert await refused(write()) == "STORE_FAILED"


async def test_an_error_of_the_disk_names_no_path_on_a_link(served: ServedHub, tmp_path: Path):
    link = served.owner.link()
    await link.send(Hello((1,)), Open(served.id, Digest(bytes(32))))
    (tmp_path / "hub" / "log").rename(tmp_path / "hub" / "moved")
    entry = served.writer.write(served.id, said("x"), parents=[served.genesis])
    await link.send(Entries(served.id, (entry,)))
    while not isinstance(message := await link.read(), Close):
        assert message is not None
    assert message.fault is not None
    assert message.fault.reason == "STORE_FAILED"
    assert str(tmp_path) not in message.fault.detail
    link.call.cancel()
