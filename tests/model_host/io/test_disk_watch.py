"""What a host says of its disk: that it is nearly full, or that it can't be looked at."""

import errno
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from model_host.io.disk_watch import DiskWatch
from model_host.io.files.checkpoint_files import Checkpoints
from tests.model_host.io.served_host import ServedHost


@pytest.mark.parametrize("is_full", [True, False])
async def test_a_disk_that_fails_is_not_said_to_be_full(served: ServedHost, is_full: bool):
    fails = True

    def spare(_folder: Path) -> int:
        if not fails:
            return 1
        if is_full:
            return -1
        raise OSError(errno.EIO, "failed", str(served.checkpoints))

    pages = Checkpoints(served.checkpoints, mac_key=b"k" * 32, budget_bytes=1, spare=spare)
    async with served.host() as host:
        watch = DiskWatch(host.host, pages)
        with capture_logs() as lines:
            await watch.look()
            await watch.look()
            fails = False
            await watch.look()
    told, over = lines
    if is_full:
        assert told["event"] == "little disk is left for the log"
        assert over["event"] == "there is disk for the log again"
    else:
        assert told["event"] == "the disk can't be looked at"
        assert told["detail"].count(str(served.checkpoints)) == 1
        assert over["event"] == "the disk can be looked at again"
