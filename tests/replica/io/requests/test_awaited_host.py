"""Who waits for an answer of a host that is gone: a request stands unless it was cancelled."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from replica.conversation import Conversation
from replica.ids import EntryId
from replica.io import AwaitedHost, begin, cancels, require_link
from replica.io.driver.replica import Replica
from replica.io.requests import awaited_host
from replica.io.requests.answer_errors import HostGone
from replica.log import Grant, Role, Sampling
from replica.log.body import Genesis, Request
from replica.log.entry import public_key
from syncd.io.config import HubConfig
from syncd.io.server import HubServer, start
from tests.support.scripted_host import host_info
from tests.support.talk import key_of
from tests.support.writers import said

WAIT_S = 10.0
HOST = key_of(2)


@asynccontextmanager
async def asked(folder: Path) -> AsyncIterator[tuple[HubServer, Replica, Conversation, EntryId]]:
    """Run a hub, and a replica with a request to a host that is not linked."""
    hub = await start(HubConfig(data_dir=folder / "hub", listen="127.0.0.1:0"))
    async with Replica.open(folder / "me" / "log.db", key_of(1), hub.address) as me:
        await require_link(me, WAIT_S)
        talk = await me.create(Genesis((me.public,)))
        await begin.grant(me, talk, Grant(public_key(HOST), Role.HOST))
        words = await me.append(talk, said("Hello."), parents=(EntryId(talk),))
        request = Request(public_key(HOST), Sampling())
        written = await me.append(talk, request, parents=(words.id,))
        yield hub, me, await me.load(talk), written.id
    await hub.stop()


async def test_a_request_stands_without_its_host_until_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_host, "LOOK_S", 0.0)
    async with asked(tmp_path) as (_, me, held, request):
        host = AwaitedHost(me, request)
        for _ in range(3):
            assert await host.look(held) is None
        await cancels.cancel(me, held.id, request)
        assert await host.look(held) == 0.0  # its last words may be on their way
        with pytest.raises(HostGone, match="has left the hub"):
            await host.look(held)


async def test_a_host_that_may_be_there_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_host, "LOOK_S", 0.0)
    async with asked(tmp_path) as (hub, me, held, request):
        await cancels.cancel(me, held.id, request)
        host, path = AwaitedHost(me, request), tmp_path / "host" / "log.db"
        assert await host.look(held) == 0.0
        async with Replica.open(path, HOST, hub.address, host=host_info(HOST)) as served:
            await require_link(served, WAIT_S)
            for _ in range(3):
                assert await host.look(held) == 0.0
        await hub.stop()
        assert await me.wait_for(lambda: me.hub.is_away, WAIT_S)
        for _ in range(3):  # nobody can say whether it is linked
            assert await host.look(held) == 0.0
