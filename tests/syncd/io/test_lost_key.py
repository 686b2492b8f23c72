"""A hub whose key was lost or replaced beside its store says so: its clients refuse the new one."""

import shutil
from pathlib import Path

import structlog.testing

from replica.io.files.keys import load_or_create
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
        assert warned(lines) == is_lost


async def test_the_key_of_another_hub_beside_a_store_is_logged(tmp_path: Path) -> None:
    """It was used without a word, and no client came back."""
    async with serve_hub(tmp_path) as served:
        await served.say("kept")
    key, own = tmp_path / "hub" / "identity.key", tmp_path / "own.key"
    shutil.copy(key, own)
    load_or_create(tmp_path / "other.key")
    for file, is_other in ((own, False), (tmp_path / "other.key", True), (own, True), (own, False)):
        shutil.copy(file, key)
        with structlog.testing.capture_logs() as lines:
            hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
        await hub.stop()
        assert warned(lines) == is_other


def warned(lines: list[structlog.typing.EventDict]) -> bool:
    """Say whether a start was logged as one with another key."""
    said = [line["log_level"] for line in lines if "another key" in line["event"]]
    assert said in ([], ["warning"])
    return bool(said)
