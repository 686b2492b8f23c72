"""A damaged part of the mailboxes counts as empty, and is said."""

from pathlib import Path

from structlog.testing import capture_logs

from replica.io.store.store import Store
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.files import flip_byte


async def test_a_hub_with_a_damaged_part_of_its_mailboxes_starts_and_says_so(
    tmp_path: Path,
) -> None:
    config = HubConfig(data_dir=tmp_path, listen="127.0.0.1:0")
    await (await start(config)).stop()
    path = tmp_path / "log" / "log.db"
    async with await Store.open(path) as store:
        await store.put_meta("mailboxes 3", b"the boxes of this part")
    flip_byte(path, b"the boxes of this part")
    with capture_logs() as logs:
        hub = await start(config)
        await hub.stop()
    assert [one["event"] for one in logs].count("mailboxes damaged") == 1
