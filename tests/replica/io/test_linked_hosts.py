"""The hosts linked to a hub, asked while another process holds the replica."""

from pathlib import Path

import pytest

from replica.ids import PublicKey
from replica.io.linked_hosts import linked_hosts
from replica.io.replica import Replica
from replica.io.tls_refusals import HubKeyUnknown
from replica.log.entry import public_key
from replica.refusals import HubUnreachable, PeerIdentityChanged
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.scripted_host import host_info
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
