"""The socket beside a store: who may use it, and how its frames are read (DECISIONS D340)."""

import asyncio
import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from replica.io.files.claims import Claims
from replica.io.local import local_frames, local_server, local_socket
from replica.io.local.local_client import ConnectionEnded, LocalClient
from replica.io.local.local_frames import LocalFrame, SharingUnsupported, WriteUnconfirmed
from replica.io.local.local_server import Identity, LocalServer
from replica.refusals import FrameMalformed, StoreLocked
from tests.support.writers import Writer

ME = Identity.of(Writer(1).public, "me")


async def echo(frame: LocalFrame) -> LocalFrame:
    return LocalFrame({"echo": frame.head["op"]}, frame.blobs)


async def served(store: Path) -> LocalServer:
    server = LocalServer(ME, echo)
    server.start(local_socket.listen(store))
    return server


async def ignore(_frame: LocalFrame) -> None:
    """Receive nothing."""


def test_only_the_same_user_may_share() -> None:
    assert local_socket.may_share(1000, 1000)
    assert not local_socket.may_share(1001, 1000)
    assert not local_socket.may_share(0, 1000)


async def test_a_process_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await served(tmp_path / "s")
    monkeypatch.setattr(local_server, "peer_user", lambda _peer: os.getuid() + 1)
    with pytest.raises(ConnectionEnded):
        await LocalClient.join(tmp_path / "s", ME)
    await server.stop()


async def test_a_stale_socket_is_replaced_and_a_long_path_works(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 200)
    folder.mkdir()
    store = folder / "log.db"
    local_socket.listen(store).close()  # as a killed process leaves it
    with pytest.raises(ConnectionEnded):
        await LocalClient.join(store, ME)
    server = await served(store)
    assert stat.S_IMODE(local_socket.socket_path(store).stat().st_mode) == 0o600
    client = await LocalClient.join(store, ME)
    reading = asyncio.create_task(client.run(ignore))
    answer = await client.request(LocalFrame({"op": "a"}, (b"1", b"")))
    assert (answer.head["echo"], answer.blobs) == ("a", (b"1", b""))
    await server.stop()
    await reading
    with pytest.raises(ConnectionEnded):
        await client.request(LocalFrame({"op": "b"}))


async def test_another_version_and_another_key_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await served(tmp_path / "s")
    with pytest.raises(StoreLocked, match="another key"):
        await LocalClient.join(tmp_path / "s", Identity.of(Writer(2).public, None))
    monkeypatch.setattr("replica.io.local.local_client.VERSIONS", (0,))
    with pytest.raises(SharingUnsupported) as refused:
        await LocalClient.join(tmp_path / "s", ME)
    assert refused.value.reason == "SHARING_UNSUPPORTED"
    await server.stop()


async def test_a_malformed_frame_ends_the_connection(tmp_path: Path) -> None:
    server = await served(tmp_path / "s")
    for data in (b"\xff" * 64, LocalFrame({}).encode()[:-1] + b"x"):
        reader, writer = await asyncio.open_unix_connection(
            sock=local_socket.connect(tmp_path / "s")
        )
        writer.write(data)
        assert await reader.read() == b""
        writer.close()
    await server.stop()


def _sockets() -> set[str]:
    """Return the sockets of this process by their numbers; those of earlier tests may end."""
    names = set[str]()
    for one in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile, by a thread of an earlier test
            names.add(str(one.readlink()))
    return {name for name in names if name.startswith("socket:")}


@pytest.mark.parametrize("turns", range(8))
async def test_a_join_that_is_cancelled_leaves_no_connection(tmp_path: Path, turns: int) -> None:
    with local_socket.listen(tmp_path / "s") as listener:  # accepts, and never answers
        before = _sockets()
        joining = asyncio.create_task(LocalClient.join(tmp_path / "s", ME))
        for _ in range(turns):
            await asyncio.sleep(0)
        joining.cancel()
        await asyncio.wait({joining})
        await asyncio.sleep(0)  # in the next turn a transport closes its socket
        assert (joining.cancelled(), _sockets() - before) == (True, set())
        listener.close()


@pytest.mark.parametrize("data", [b"\xff" * 64, LocalFrame({}).encode()])
async def test_a_join_that_is_answered_wrongly_leaves_no_connection(
    tmp_path: Path, data: bytes
) -> None:
    with local_socket.listen(tmp_path / "s") as listener:
        before = _sockets()
        joining = asyncio.create_task(LocalClient.join(tmp_path / "s", ME))
        accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
        accepted.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(accepted, data)
        await asyncio.wait({joining})
        error = joining.exception()
        accepted.close()
        await asyncio.sleep(0)
        assert isinstance(error, FrameMalformed)
        assert _sockets() == before


@pytest.mark.parametrize("data", [b"\0\0\0\0", b"\1\0\0\0\4\0\0\0\0\0\0\0", b"\1\0\0\0\2\0\0\0[]"])
async def test_bad_frames_are_refused(data: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    with pytest.raises(FrameMalformed):
        await local_frames.read_frame(reader)


async def test_a_process_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, performed = asyncio.Event(), []

    async def late(frame: LocalFrame) -> LocalFrame:
        performed.append(frame.head["op"])
        await go_on.wait()
        return LocalFrame({})

    server = LocalServer(ME, late)
    server.start(local_socket.listen(tmp_path / "s"))
    client = await LocalClient.join(tmp_path / "s", ME)
    reading = asyncio.create_task(client.run(ignore))
    with monkeypatch.context() as patch:
        patch.setattr("replica.io.local.local_client.ANSWER_S", 0.01)
        with pytest.raises(WriteUnconfirmed, match="does not answer"):
            await client.request(LocalFrame({"op": "put"}))
        with pytest.raises(WriteUnconfirmed):
            await client.request(LocalFrame({"op": "delete"}))
        with pytest.raises(StoreLocked, match="does not answer"):
            await client.request(LocalFrame({"op": "nothing"}))
        patch.undo()
        patch.setattr("replica.io.local.local_client.SILENT_S", 0.01)
        async with asyncio.timeout(5):  # later calls find it silent, and wait less
            with pytest.raises(StoreLocked):
                await client.request(LocalFrame({"op": "nothing"}))
    go_on.set()
    await client.request(LocalFrame({"op": "slot"}))
    assert performed == ["put", "slot"], "what nobody waits for any more is not begun"
    client.close()
    await reading
    await server.stop()


@pytest.mark.parametrize("turns", range(9))
async def test_a_stopped_server_serves_nobody_whom_it_was_accepting(
    tmp_path: Path, turns: int
) -> None:
    server = await served(tmp_path / "s")
    joining = asyncio.create_task(LocalClient.join(tmp_path / "s", ME))
    for _ in range(turns):
        await asyncio.sleep(0)
    await server.stop()
    try:
        client = await joining
    except ConnectionEnded:
        return
    reading = asyncio.create_task(client.run(ignore))
    with pytest.raises(ConnectionEnded):
        await client.request(LocalFrame({"op": "a"}))
    await reading


class Poor(socket.socket):
    """A listening socket of a process that lacks descriptors at first."""

    refused = 0

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.refused:
            self.refused += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_who_could_not_be_accepted_is_accepted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_server, "ACCEPT_PAUSE_S", 0.0)
    listener = Poor(fileno=local_socket.listen(tmp_path / "s").detach())
    server = LocalServer(ME, echo)
    server.start(listener)
    client = await LocalClient.join(tmp_path / "s", ME)
    assert listener.refused
    client.close()
    await server.stop()


def test_a_claim_has_one_holder(tmp_path: Path) -> None:
    one, other = Claims(tmp_path / "s"), Claims(tmp_path / "s")
    assert one.claim(b"run")
    assert not other.claim(b"run")
    assert other.is_claimed(b"run")
    assert not one.is_claimed(b"run"), "by another one"
    assert not one.is_claimed(b"free")
    assert other.claim(b"other")
    assert one.claim(b"run")
    one.release(b"run")
    assert not other.claim(b"run")
    one.release(b"run")
    assert other.claim(b"run")
    other.close()  # as its end does
    assert one.claim(b"run")
