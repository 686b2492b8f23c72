"""The hosts linked to a hub, asked while another process holds the replica."""

import asyncio
from pathlib import Path

import pytest

from antiphon.v1 import sync_pb2 as pb
from replica.ids import PublicKey
from replica.io import begin, rpc
from replica.io.driver.replica import Replica
from replica.io.requests.linked_hosts import learn_hosts, linked_hosts
from replica.io.serving.tls_refusals import HubKeyUnknown
from replica.link import Event, HostsLearned
from replica.log import Grant, Role
from replica.log.entry import public_key
from replica.refusals import ArgumentInvalid, HubUnreachable, PeerIdentityChanged
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.replica.io.driver.test_lying_hub import LyingHub, lying
from tests.support.scripted_host import ADVISED, PROFILE, host_info
from tests.support.talk import key_of


async def test_a_hub_names_its_hosts_to_a_key_without_a_store(tmp_path: Path):
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    key = key_of(2)
    assert await linked_hosts(hub.address, key_of(1), hub.key) == ()
    path = tmp_path / "host" / "log.db"
    async with Replica.open(path, key, hub.address, host=host_info(key)) as host:
        assert await host.wait_for(lambda: host.hub.is_linked, 10)
        (found,) = await linked_hosts(hub.address, key_of(1), None)
        assert (found.key, found.vouched) == (public_key(key), False)
    with pytest.raises(PeerIdentityChanged):
        await linked_hosts(hub.address, key_of(1), PublicKey(b"?" * 32))
    await hub.stop()
    with pytest.raises(HubUnreachable):
        await linked_hosts(hub.address, key_of(1), None)


async def test_off_loopback_no_hub_is_asked_whose_key_is_unknown():
    with pytest.raises(HubKeyUnknown):
        await linked_hosts("192.0.2.1:7411", key_of(1), None)


async def test_a_linked_replica_learns_of_a_host_that_came_after_its_welcome(tmp_path: Path):
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    events: list[Event] = []
    async with Replica.open(tmp_path / "me" / "log.db", key_of(1), hub.address) as me:
        await learn_hosts(me)  # maybe not linked yet: nothing is known, and nothing is raised
        assert await me.wait_for(lambda: me.hub.is_linked, 10)
        me.listen(events.append)
        key = key_of(2)
        path = tmp_path / "host" / "log.db"
        async with Replica.open(path, key, hub.address, host=host_info(key)) as host:
            assert await host.wait_for(lambda: host.hub.is_linked, 10)
            assert me.hub.hosts == ()
            for _ in range(2):  # what is known already is no event
                await learn_hosts(me)
            assert [one.key for one in me.hub.hosts] == [public_key(key)]
            assert events == [HostsLearned(me.hub.hosts)]
        await hub.stop()
        await me.wait_for(lambda: me.hub.is_away, 10)
        await learn_hosts(me)
        assert [one.key for one in me.hub.hosts] == [public_key(key)]


async def test_a_request_is_made_from_what_its_host_recommends_now(tmp_path: Path):
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    key = key_of(2)
    async with Replica.open(tmp_path / "me" / "log.db", key_of(1), hub.address) as me:
        assert await me.wait_for(lambda: me.hub.is_linked, 10)
        grants = [Grant(public_key(key), Role.HOST)]
        held = await me.load(await begin.begin(me, None, grants, None))
        path = tmp_path / "host" / "log.db"
        async with Replica.open(path, key, hub.address, host=host_info(key)) as host:
            assert await host.wait_for(lambda: host.hub.is_linked, 10)
            with pytest.raises(ArgumentInvalid):
                begin.request_options(me, held, profile=PROFILE.name)
            await begin.learn_hosts_of(me, held, profile=PROFILE.name)
            options = begin.request_options(me, held, profile=PROFILE.name)
            assert options.profile == PROFILE.digest
            assert options.sampling.temperature == ADVISED.temperature
    await hub.stop()


async def test_a_hub_that_is_silent_or_lies_leaves_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    malformed = pb.HostsResponse(hosts=[pb.LinkedHost(info=pb.HostInfo(key=b"short"))])
    async with lying(LyingHub()) as hub:
        async with Replica.open(tmp_path / "log.db", key_of(1), hub.address) as me:
            assert await me.wait_for(lambda: me.hub.is_linked, 10)
            for hub.hosts_named in (None, malformed):
                async with asyncio.timeout(10):
                    await learn_hosts(me, 0.2)
                assert me.hub.hosts == ()
        monkeypatch.setattr(rpc, "CALL_TIMEOUT_S", 1.0)
        hub.hosts_named = None
        with pytest.raises(HubUnreachable, match="no answer came in time"):
            await linked_hosts(hub.address, key_of(1), None)
