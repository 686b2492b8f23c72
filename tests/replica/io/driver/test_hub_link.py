"""Why there is no link: the log, and whoever asks for the status, are told what the hub said."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from replica.ids import Digest
from replica.io.driver.hub_status import means_away
from replica.io.driver.replica import Replica
from replica.limits import HOST_TEXT_BYTES_MAX
from replica.link import Close, Event, Fault, HostInfo, LinkClosed, Message, ProfileInfo
from replica.refusals import VersionUnsupported
from syncd.io.server import HubServer
from tests.replica.io.driver.test_lying_hub import LyingHub, lying
from tests.support.callers import serve_hub, until
from tests.support.writers import Writer

HOST = Writer(7)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubServer]:
    async with serve_hub(tmp_path) as served:
        yield served.hub


async def test_a_greeting_that_the_hub_refuses_is_the_reason_why_there_is_no_link(
    tmp_path: Path, hub: HubServer
) -> None:
    """Such as that of a host: it said that it was ready, and never why nobody found it."""
    name = "n" * (HOST_TEXT_BYTES_MAX + 1)
    info = HostInfo(HOST.public, "127.0.0.1:1", (ProfileInfo(Digest(bytes(32)), name, 64),))
    with capture_logs() as logs:
        path = tmp_path / "host" / "log.db"
        async with Replica.open(path, HOST.key, hub.address, host=info) as replica:
            closed: list[Event] = []
            replica.listen(
                lambda event: closed.append(event) if type(event) is LinkClosed else None
            )
            await until(lambda: len(closed) > 3)  # it has tried again
            assert replica.hub.is_away
            assert replica.hub.last_error is not None
            assert replica.hub.last_error.reason == "ARGUMENT_INVALID"
    (line,) = [line for line in logs if line["event"] == "hub link down"]
    assert (line["reason"], line["log_level"]) == ("ARGUMENT_INVALID", "warning")


async def test_a_lasting_refusal_is_known_until_there_is_a_link(tmp_path: Path) -> None:
    """The end of its stream comes behind it, and has no reason of its own."""
    async with lying(LyingHub()) as hub:
        refusal: list[Message] = [Close(None, Fault.of(VersionUnsupported("another version")))]
        hub.lie = lambda _message: refusal
        async with Replica.open(tmp_path / "log.db", HOST.key, hub.address) as replica:
            await until(lambda: len(hub.received) > 1)  # it has tried again
            assert await replica.wait_for(lambda: replica.hub.is_away, 20)
            assert replica.hub.lasting_error is not None
            assert replica.hub.lasting_error.reason == "VERSION_UNSUPPORTED"
            refusal.clear()
            assert await replica.wait_for(lambda: replica.hub.is_linked, 20)
            assert replica.hub.lasting_error is None


async def test_a_hub_that_stops_refuses_nothing(tmp_path: Path, hub: HubServer) -> None:
    async with Replica.open(tmp_path / "log.db", HOST.key, hub.address) as replica:
        assert await replica.wait_for(lambda: replica.hub.is_linked, 20)
        await hub.stop()
        assert await replica.wait_for(lambda: replica.hub.is_away, 20)
        assert replica.hub.last_error is not None
        assert means_away(replica.hub.last_error)
