"""Checkpoints that travel: from a host through a member's file to another host of its key ring."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from antiphon.cli.main import app
from antiphon.v1 import host_pb2 as pb
from model_host.io.calls import archive_service
from model_host.io.config import HostConfig
from model_host.io.server import HostServer
from model_host.io.server import start as start_host
from model_host.kv.archive import ARCHIVE_HEADER_BYTES
from model_host.kv.checkpoint import Manifest
from replica import limits
from replica.errors import AntiphonError, StoreError, Unavailable
from replica.ids import ConversationId, PublicKey
from replica.io.calls import host_calls
from replica.io.calls.call_end import typed_end
from replica.io.calls.host_calls import ArchiveTooLarge, HostCalls
from replica.io.files.keys import load_or_create
from replica.limits import IMPORTS_MAX
from replica.log.body import Grant, Member, Revocation, Role, Sampling
from replica.log.entry import public_key
from replica.refusals import ConversationUnknown, LinkIdle, NotAllowed, RateLimited, SlowReader
from tests.model_host.io.served_host import ServedHost
from tests.support.callers import until
from tests.support.talk import Talk, key_of

SEEDED = Sampling(temperature=0.9, top_p=0.95, seed=11)
LONG = "Tell me of the sea. " * 16


@asynccontextmanager
async def other_host(
    served: ServedHost, name: str, ring: Path | None = None
) -> AsyncIterator[HostServer]:
    """Run another host, with a copy of a key ring if one is given."""
    config = HostConfig(data_dir=served.folder / name, hub=served.hub.address, key_ring=ring)
    async with start_host(config, served.engine) as host:
        yield host
    for slab in range(served.engine.memory.slabs):
        served.engine.memory.clear(slab)


async def grant(talk: Talk, key: PublicKey, role: Role) -> None:
    heads = tuple(talk.held.log.membership_heads())
    await talk.replica.append(talk.id, Member(Grant(key, role)), parents=heads)


async def refused(calls: HostCalls, data: bytes) -> str:
    with pytest.raises(AntiphonError) as caught:
        await calls.import_(parts(data))
    return caught.value.reason


def parts(data: bytes) -> list[bytes]:
    return [data[at : at + 4_000] for at in range(0, len(data), 4_000)]


async def test_an_import_that_is_left_while_it_is_stored_ends_before_its_file(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    begun, free, stored = asyncio.Event(), threading.Event(), list[object]()
    loop, store = asyncio.get_running_loop(), archive_service.store_archive

    def slowly(*given: Any) -> object:
        loop.call_soon_threadsafe(begun.set)
        assert free.wait(30)
        try:
            stored.append(store(*given))
        except BaseException as error:
            stored.append(error)
            raise
        return stored[0]

    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask(LONG, tokens=4, sampling=SEEDED)
        await served.kept(talk, host, 1)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            archive = b"".join([part async for part in calls.export(talk.id)])
            monkeypatch.setattr(archive_service, "store_archive", slowly)
            importing = asyncio.create_task(calls.import_(parts(archive)))
            await begun.wait()
            importing.cancel()
            await asyncio.wait([importing])
            await calls.describe()  # the host has seen the end of the other call before
            with pytest.raises(RateLimited):  # the place is taken until it is stored
                await calls.import_(parts(archive))
            free.set()
            await until(lambda: bool(stored))
    assert isinstance(stored[0], Manifest)


async def test_a_host_that_refuses_in_the_middle_of_an_upload_is_understood(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask(LONG, tokens=4, sampling=SEEDED)
        await served.kept(talk, host, 1)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            archive = b"".join([part async for part in calls.export(talk.id)])
            imports = served.folder / "host" / "derived" / "imports"
            imports.rmdir()
            imports.touch()
            for _ in range(5):
                with pytest.raises(StoreError) as caught:
                    await calls.import_([archive[:4_000], *[bytes(250_000)] * 100])
                assert str(imports) not in caught.value.detail
            imports.unlink()
            await calls.import_(parts(archive))


async def has_log(host: HostServer, talk: Talk) -> None:
    """Wait until a host has all of a conversation; it is on the shelf before its entries."""

    def is_whole() -> bool:
        held = host.replica.shelf.get(talk.id)
        return held is not None and held.log.digest == talk.held.log.digest

    assert await host.replica.wait_for(is_whole, 20)


async def remove(talk: Talk, host: HostServer, key: Ed25519PrivateKey) -> None:
    heads = tuple(talk.held.log.membership_heads())
    await talk.replica.append(talk.id, Member(Revocation(public_key(key), ())), parents=heads)
    await has_log(host, talk)


async def test_a_checkpoint_travels_to_another_host_of_the_ring(served: ServedHost):
    second = public_key(load_or_create(served.folder / "second" / "identity.key"))
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await grant(talk, second, Role.HOST)
        _, first = await talk.ask(LONG, tokens=4, sampling=SEEDED)
        await served.kept(talk, host, 1)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            archive = b"".join([part async for part in calls.export(talk.id)])
    tokens = first.usage.prompt_tokens + first.usage.output_tokens - 1
    moved = Talk(served.replica, talk.id, second)
    async with other_host(served, "second", served.folder / "host") as host:
        assert host.key == second
        await has_log(host, talk)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            done = await calls.import_(parts(archive))
        assert (done.conversation, done.checkpoint.tokens) == (talk.id, tokens)
        _, answer = await moved.ask("Go on.", tokens=6, sampling=SEEDED)
        assert answer.usage.restored_tokens == tokens
        assert host.thread.counts.batch.restores == 1
        await until(lambda: host.thread.counts.audits.audited > 0)
        assert host.thread.counts.audits.mismatches == 0  # bit by bit what this host computes
        await host.thread.evict(talk.id, checkpoints=True)
        again = await moved.answer(await moved.regenerate(newest_request(moved)))
    assert again.token_ids == answer.token_ids
    assert again.usage.prefilled_tokens == again.usage.prompt_tokens


def newest_request(talk: Talk):
    tips = talk.held.order.tips()
    return max(tips, key=lambda node: talk.held.log.entries[node.id].header.lamport).seal.request


async def test_archives_that_were_changed_or_are_foreign_leave_nothing(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    third = public_key(load_or_create(served.folder / "third" / "identity.key"))
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        other = await Talk.begin(served.replica, host.key)
        await grant(talk, third, Role.HOST)
        await talk.ask(LONG, tokens=2)
        await served.kept(talk, host, 1)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            archive = b"".join([part async for part in calls.export(talk.id)])
            with pytest.raises(AntiphonError) as nothing:
                _ = [part async for part in calls.export(other.id)]
            assert nothing.value.reason == "CHECKPOINT_MISSING"
            assert nothing.value.next_step.startswith("Send a message, wait until the host")
            await host.thread.evict(talk.id, checkpoints=True)
            flipped = bytearray(archive)
            flipped[len(archive) // 2] ^= 1
            assert await refused(calls, bytes(flipped)) == "ARCHIVE_INVALID"
            assert await refused(calls, archive[:-1]) == "ARCHIVE_INVALID"
            assert await refused(calls, archive[:50]) == "ARCHIVE_INVALID"
            # Replayed into another conversation of the same owner and readers.
            moved = archive[:8] + other.id + archive[40:]
            assert await refused(calls, moved) == "ARCHIVE_FOREIGN"
            monkeypatch.setattr(archive_service, "ARCHIVE_BYTES_MAX", len(archive) - 1)
            with pytest.raises(AntiphonError) as large:
                await calls.import_(parts(archive))
            assert large.value.reason == "ARCHIVE_TOO_LARGE"
            monkeypatch.undo()
        for conversation in (talk.id, other.id):
            assert await host.thread.manifests(conversation) == []
        assert list((served.folder / "host" / "derived" / "imports").iterdir()) == []
    async with other_host(served, "third") as host:  # without the ring
        await has_log(host, talk)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            assert await refused(calls, archive) == "ARCHIVE_FOREIGN"


async def test_an_export_ends_for_a_member_that_is_removed_while_it_is_read(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    pieces = iter([b"x" * 1_000_000] * 64)  # more than gRPC sends without a reader
    monkeypatch.setattr(archive_service, "encrypt_archive", lambda *_given: pieces)
    member = key_of(7)
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await grant(talk, public_key(member), Role.WRITER)
        await talk.ask(LONG, tokens=2)
        await served.kept(talk, host, 1)
        async with HostCalls(host.address, member, host.key) as calls:
            reading = calls.export(talk.id)
            await anext(reading)
            await remove(talk, host, member)
            with pytest.raises(AntiphonError) as ended:
                _ = [part async for part in reading]
            assert ended.value.reason == "CONVERSATION_NOT_FOUND"


async def test_an_archive_that_no_host_takes_is_neither_sent_nor_received(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask(LONG, tokens=2)
        await served.kept(talk, host, 1)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            size = sum([len(part) async for part in calls.export(talk.id)])
            monkeypatch.setattr(archive_service, "ARCHIVE_BYTES_MAX", size - 1)
            with pytest.raises(ArchiveTooLarge, match=f"It has {size:,} bytes"):
                _ = [part async for part in calls.export(talk.id)]
            monkeypatch.setattr(archive_service, "ARCHIVE_BYTES_MAX", size)
            assert size == sum([len(part) async for part in calls.export(talk.id)])
            # A host that sends without end.
            monkeypatch.setattr(archive_service, "encrypt_archive", lambda *_: repeat(b"x" * 1_000))
            monkeypatch.setattr(host_calls, "ARCHIVE_BYTES_MAX", 5_500)
            received = []
            with pytest.raises(ArchiveTooLarge, match="sends more"):
                async for part in calls.export(talk.id):
                    received.append(part)  # counted when it is cut off
            assert len(received) == 5


async def test_readers_and_strangers_neither_export_nor_import(served: ServedHost):
    reader = key_of(7)
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await grant(talk, public_key(reader), Role.READER)
        await talk.ask("Hello.", tokens=2)
        await served.kept(talk, host, 1)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            archive = b"".join([part async for part in calls.export(talk.id)])
        for key, refusal in ((reader, NotAllowed), (key_of(9), ConversationUnknown)):
            async with HostCalls(host.address, key, host.key) as calls:
                with pytest.raises(refusal):
                    _ = [part async for part in calls.export(talk.id)]
                with pytest.raises(refusal):
                    await calls.import_(parts(archive))


@asynccontextmanager
async def begun_import(host: HostServer, number: int, header: bytes) -> AsyncIterator[Any]:
    """Begin an import of a key, which then brings nothing more."""
    async with HostCalls(host.address, key_of(number), host.key) as calls:
        await calls.authenticate()
        call = calls._stub.Import(metadata=calls._metadata())
        try:
            async with typed_end(call):
                await call.write(pb.ImportRequest(data=header))
                assert isinstance(await call.read(), pb.ImportResponse)
            yield call
        finally:
            call.cancel()


async def test_an_archive_of_a_member_that_was_removed_while_it_came_is_not_kept(
    served: ServedHost,
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await grant(talk, public_key(key_of(7)), Role.WRITER)
        await talk.ask(LONG, tokens=2)
        await served.kept(talk, host, 1)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            archive = b"".join([part async for part in calls.export(talk.id)])
        async with begun_import(host, 7, archive[:4_000]) as call:
            await remove(talk, host, key_of(7))
            with pytest.raises(ConversationUnknown):
                async with typed_end(call):
                    await call.write(pb.ImportRequest(data=archive[4_000:]))
                    await call.done_writing()
                    await call.read()


async def begin_refused(host: HostServer, number: int, header: bytes) -> AntiphonError:
    """Begin an import of a key, which is refused; return the reason."""
    with pytest.raises(AntiphonError) as caught:
        async with begun_import(host, number, header):
            pass
    return caught.value


async def in_the_end(try_it: Callable[[], Awaitable[object]]) -> None:
    """Try a call again until it is not refused for want of a place."""
    async with asyncio.timeout(30):
        while True:
            try:
                await try_it()
            except Unavailable as error:
                assert error.retry_after_s
            else:
                return


async def test_imports_that_bring_nothing_keep_no_other_key_out(served: ServedHost):
    one, *others = range(7, 8 + IMPORTS_MAX)  # the host hears later that the one has hung up
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        for number in (one, *others):
            await grant(talk, public_key(key_of(number)), Role.WRITER)
        await talk.ask(LONG, tokens=2)
        await served.kept(talk, host, 1)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            archive = b"".join([part async for part in calls.export(talk.id)])
            header = archive[:ARCHIVE_HEADER_BYTES]

            async def again() -> None:
                await calls.import_(parts(archive))

            async with begun_import(host, one, header):
                of_one = await begin_refused(host, one, header)  # its second one, at once
                assert (type(of_one), of_one.retry_after_s) == (RateLimited, 1.0)
                await again()
            async with AsyncExitStack() as begun:

                async def begin(number: int) -> None:
                    await begun.enter_async_context(begun_import(host, number, header))

                for number in others:
                    await in_the_end(partial(begin, number))
                with pytest.raises(Unavailable, match="too many such calls") as of_all:
                    await again()
                assert of_all.value.retry_after_s
            await in_the_end(again)


async def test_an_import_that_brings_nothing_ends_and_gives_its_place_up(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask(LONG, tokens=2)
        await served.kept(talk, host, 1)
        async with HostCalls(host.address, served.replica.key, host.key) as calls:
            archive = b"".join([part async for part in calls.export(talk.id)])
            monkeypatch.setattr(limits, "IDLE_TIMEOUT_S", 1.0)
            async with begun_import(host, 1, archive[:ARCHIVE_HEADER_BYTES]) as call:
                with pytest.raises(LinkIdle, match="nothing of the archive is kept"):
                    await ended(call)
                monkeypatch.undo()
                await calls.import_(parts(archive))


async def ended(call: Any) -> None:
    """Wait for the end of a call. Raises its error."""
    async with typed_end(call):
        assert await call.read() is grpc.aio.EOF


async def test_exports_that_are_not_read_keep_no_other_key_out(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    """And a key has one of them; its place is another's once it has not read for too long."""
    monkeypatch.setattr(archive_service, "EXPORTS_MAX", 1)
    encrypt = archive_service.encrypt_archive
    monkeypatch.setattr(limits, "WRITE_TIMEOUT_S", 0.5)
    member = key_of(7)
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await grant(talk, public_key(member), Role.WRITER)
        await talk.ask(LONG, tokens=2)
        await served.kept(talk, host, 1)
        async with (
            HostCalls(host.address, member, host.key) as theirs,
            HostCalls(host.address, served.replica.key, host.key) as calls,
        ):
            pieces = [b"x" * 1_000_000] * 64  # more than gRPC sends without a reader
            monkeypatch.setattr(archive_service, "encrypt_archive", lambda *_given: iter(pieces))
            reading = theirs.export(talk.id)
            await anext(reading)
            with pytest.raises(RateLimited):
                await anext(theirs.export(talk.id))
            monkeypatch.setattr(archive_service, "encrypt_archive", encrypt)

            async def read_all() -> None:
                assert b"".join([part async for part in calls.export(talk.id)])

            with pytest.raises(Unavailable, match="too many such calls"):
                await read_all()
            await in_the_end(read_all)
            with pytest.raises(SlowReader):
                _ = [part async for part in reading]


async def command(served: ServedHost, *arguments: str) -> dict[str, Any]:
    """Run the command beside the host; return its record."""
    environment = {
        "ANTIPHON_DATA_DIR": str(served.folder / "user"),
        "ANTIPHON_HUB": served.hub.address,
        "XDG_CONFIG_HOME": str(served.folder),
    }
    invoke = CliRunner().invoke
    result = await asyncio.to_thread(invoke, app, [*arguments, "--json"], env=environment)
    assert result.exit_code == 0, result.output
    record: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return record


async def test_the_command_exports_and_imports(served: ServedHost):
    file = str(served.folder / "pages.archive")
    async with served.host() as host:
        made = await command(served, "new", "--host", host.key.hex())
        conversation = ConversationId(bytes.fromhex(made["conversation"]))
        await command(served, "send", "Hello.", "--max-tokens", "2")
        assert len(await host.thread.manifests(conversation)) == 1
        exported = await command(served, "pages", "export", conversation.hex(), file)
        await host.thread.evict(conversation, checkpoints=True)
        imported = await command(served, "pages", "import", file)
        (manifest,) = await host.thread.manifests(conversation)
        assert (imported["host"], imported["tokens"]) == (host.key.hex(), manifest.tokens)
        assert imported["bytes"] == manifest.nbytes < exported["bytes"]
