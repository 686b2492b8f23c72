"""A host whose key file is gone beside its log."""

from pathlib import Path

import pytest

from model_host.engine.torch_engine import TorchEngine
from model_host.io.config import HostConfig
from model_host.io.server import start
from replica.io import keys
from replica.io.key_refusals import HostKeyGone

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
