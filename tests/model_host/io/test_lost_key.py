"""A host whose key file is gone beside its log, and one whose hub has another key."""

from pathlib import Path

import pytest

from model_host.engine.torch_engine import TorchEngine
from model_host.io.config import HostConfig
from model_host.io.server import start
from replica.io import keys
from replica.io.files.key_refusals import HostKeyGone
from replica.refusals import PeerIdentityChanged
from syncd.io.config import HubConfig
from syncd.io.server import start as start_hub

UNREACHABLE = "127.0.0.1:1"


async def test_a_host_whose_key_is_gone_is_no_other_host(tmp_path: Path, tiny: TorchEngine):
    folder = tmp_path / "host"
    config = HostConfig(UNREACHABLE, data_dir=folder, listen="127.0.0.1:0", threads=1)
    async with start(config, tiny) as host:
        mine = host.key
    path = folder / "identity.key"
    backup = keys.backup(path, "a long one")
    path.unlink()
    with pytest.raises(HostKeyGone, match="is gone") as gone:
        async with start(config, tiny):
            pass
    assert gone.value.reason == "KEY_FILE_INVALID"
    assert "antiphon key restore FILE --data-dir FOLDER" in gone.value.next_step
    assert not path.exists()
    keys.restore(path, backup, "a long one")
    async with start(config, tiny) as host:
        assert host.key == mine


async def test_a_host_begins_anew_once_its_log_is_moved_away(tmp_path: Path, tiny: TorchEngine):
    folder = tmp_path / "host"
    config = HostConfig(UNREACHABLE, data_dir=folder, listen="127.0.0.1:0", threads=1)
    async with start(config, tiny) as host:
        mine = host.key
    (folder / "identity.key").unlink()
    (folder / "log").rename(tmp_path / "old log")
    async with start(config, tiny) as host:
        assert host.key != mine


async def test_a_host_accepts_the_stated_key_of_a_hub_in_place_of_the_pinned_one(
    tmp_path: Path, tiny: TorchEngine
):
    hub = await start_hub(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    config = HostConfig(
        hub=hub.address, data_dir=tmp_path / "host", listen="127.0.0.1:0", threads=1
    )
    async with start(config, tiny) as host:
        assert host.replica.hub.is_linked
    await hub.stop()
    (tmp_path / "hub" / "identity.key").unlink()
    hub = await start_hub(HubConfig(data_dir=tmp_path / "hub", listen=hub.address))
    try:
        async with start(config, tiny) as host:
            refused = host.replica.hub.last_error
            assert isinstance(refused, PeerIdentityChanged)
            assert "(hosts: `--hub-key`)" in refused.next_step
        stated = config.model_copy(update={"hub_key": hub.key.hex()})
        async with start(stated, tiny) as host:
            assert host.replica.hub.is_linked
    finally:
        await hub.stop()
