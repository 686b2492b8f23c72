"""A hub whose key was lost beside its store says so: its clients refuse the new one."""

from pathlib import Path

import structlog.testing

from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.callers import serve_hub


async def test_a_new_key_beside_a_store_is_logged(tmp_path: Path) -> None:
    async with serve_hub(tmp_path) as served:
        await served.say("kept")
    config = HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0")
    for is_lost in (False, True):
        if is_lost:
            (tmp_path / "hub" / "identity.key").unlink()
        with structlog.testing.capture_logs() as lines:
            hub = await start(config)
        await hub.stop()
        said = [line["log_level"] for line in lines if "new key" in line["event"]]
        assert said == ["warning"] * is_lost
