"""An answer without news says what is wrong with its hub, if that is not linked."""

from pathlib import Path

import pytest

from replica.ids import EntryId
from replica.io.driver.replica import Replica
from replica.io.requests.answer_errors import AnswerOverdue, overdue
from replica.log import public_key
from replica.refusals import HubUnreachable, PeerIdentityChanged
from syncd.io.config import HubConfig
from syncd.io.server import HubServer, start
from tests.support.talk import key_of

REQUEST = EntryId(b"r" * 32)


@pytest.fixture
async def hub(tmp_path: Path):
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    yield hub
    await hub.stop()


async def test_behind_a_linked_hub_it_is_the_host_that_is_waited_for(
    tmp_path: Path, hub: HubServer
) -> None:
    async with Replica.open(tmp_path / "log.db", key_of(1), hub.address) as me:
        assert await me.wait_for(lambda: me.hub.is_linked, 10)
        error = overdue(me.hub, REQUEST, 3.2)
    assert (str(error), error.request) == ("no news of the answer for 3.2 s", REQUEST)
    assert error.__cause__ is None
    assert error.next_step == AnswerOverdue.next_step


async def test_a_hub_that_does_not_answer_is_named_first(tmp_path: Path, hub: HubServer) -> None:
    await hub.stop()
    async with Replica.open(tmp_path / "log.db", key_of(1), hub.address) as me:
        assert await me.wait_for(lambda: me.hub.is_away, 10)
        error = overdue(me.hub, REQUEST, 3.2)
    assert str(error) == "no news of the answer for 3.2 s; the hub is away [HUB_UNREACHABLE]"
    assert isinstance(error.__cause__, HubUnreachable)
    assert error.next_step == f"{HubUnreachable.next_step} {AnswerOverdue.next_step}"


async def test_a_hub_that_is_not_linked_for_another_reason_is_quoted(
    tmp_path: Path, hub: HubServer
) -> None:
    other = public_key(key_of(9))
    opening = Replica.open(tmp_path / "log.db", key_of(1), hub.address, hub_key=other)
    async with opening as me:
        assert await me.wait_for(lambda: me.hub.is_away, 10)
        error = overdue(me.hub, REQUEST, 3.2)
    assert "; the hub is not linked: " in str(error)
    assert str(error).endswith("[PEER_IDENTITY_CHANGED]")
    assert error.next_step.startswith(PeerIdentityChanged.next_step)


async def test_a_replica_without_a_hub_says_so(tmp_path: Path) -> None:
    async with Replica.open(tmp_path / "log.db", key_of(1)) as me:
        error = overdue(me.hub, REQUEST, 3.2)
    assert str(error) == "no news of the answer for 3.2 s; this replica has no hub"
