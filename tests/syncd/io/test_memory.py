"""The hub's driver ends the links that occupy too much memory, the heaviest first (LIM-10)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replica import limits
from replica.conversation.drafts import DraftStream
from replica.errors import AntiphonError
from replica.ids import ConversationId, Digest
from replica.io.blobs.blobs import Blobs
from replica.io.store.store import Store
from replica.limits import BURST_UNITS
from replica.link.frame import Frame
from replica.link.messages import Close, Credit, Hello, Ids, Open, Pong
from replica.log.body import Grant, Member, Role
from replica.refusals import QuotaExceeded
from syncd.bounds.accountant import Accountant
from syncd.hub import Hub
from syncd.io.driver import HubDriver
from syncd.io.memory import Memory
from syncd.io.outbox import Outbox
from syncd.links.connected import LinkId
from syncd.policy import Policy
from syncd.shelves.shelf import Known
from tests.support.writers import Writer, said

ADA, EVE = Writer(1), Writer(2)
GENESIS = ADA.genesis()
GRANT = ADA.write(GENESIS.conversation, Member(Grant(EVE.public, Role.READER)), parents=[GENESIS])
LANE = [ADA.write(GENESIS.conversation, said("x" * 50), parents=[GENESIS]) for _ in range(50)]
ID = GENESIS.conversation
NOBODY = Digest(bytes(32))


class Peers:
    """A hub with links of several keys, and those that it ended."""

    def __init__(self, driver: HubDriver, accountant: Accountant) -> None:
        """Use a driver, and the accountant of its memory."""
        self.driver = driver
        self.accountant = accountant
        self.ended: list[tuple[LinkId, AntiphonError]] = []

    async def link(self, writer: Writer, *, follows: bool = False) -> LinkId:
        link_id = LinkId(0)

        def drop(error: AntiphonError) -> None:
            self.ended.append((link_id, error))
            self.driver.disconnect(link_id)

        link_id = self.driver.connect(writer.public, lambda _item: None, drop=drop)
        await self.driver.receive(link_id, Hello((1,), follow=follows), 10)
        await self.driver.receive(link_id, Open(ID, NOBODY), 100)
        return link_id


@pytest.fixture
async def peers(tmp_path: Path) -> AsyncIterator[Peers]:
    async with await Store.open(tmp_path / "log.db") as store:
        await store.append([GENESIS, GRANT, *LANE])
        driver = HubDriver(Hub(Writer(9).public, Policy()), store, Blobs(tmp_path / "blobs"))
        accountant = Accountant(holder_max=50_000, key_max=60_000, hub_max=100_000)
        driver.memory = Memory(driver.hub, accountant)
        await driver.start()
        yield Peers(driver, accountant)
        await driver.stop()


async def test_the_heaviest_links_of_a_key_beyond_its_bound_are_ended(peers: Peers) -> None:
    ada = await peers.link(ADA)
    heavy = await peers.link(EVE)
    await peers.driver.receive(heavy, Ids(ID, tuple(e.id for e in LANE), more=True), 2_000)
    assert not peers.ended
    for _ in range(20):
        await peers.link(EVE)
    assert peers.ended[0][0] == heavy
    assert {error.reason for _, error in peers.ended} == {QuotaExceeded.reason}
    assert ada in peers.driver.hub.links
    assert peers.accountant.total <= 100_000


async def test_queued_bytes_count_and_what_is_written_does_not(peers: Peers) -> None:
    eve = await peers.link(EVE)
    before = peers.accountant.total
    peers.driver.memory.note_queued(eve, 40_000)
    assert peers.accountant.total == before + 40_000
    peers.driver.memory.note_queued(eve, 0)
    assert peers.accountant.total == before
    peers.driver.memory.note_queued(eve, 60_000)
    assert [link_id for link_id, _ in peers.ended] == [eve]
    assert peers.accountant.total == 0


async def test_a_long_list_counts_for_the_link_that_follows(peers: Peers) -> None:
    """Anybody makes a key a member of as many conversations as there is disk for."""
    apart = peers.driver.hub.shelf.apart
    for number in range(500):
        one = ConversationId(b"%032d" % number)
        apart.add(one, Known(frozenset({EVE.public}), ADA.public))
    eve = await peers.link(EVE, follows=True)
    assert set(peers.driver.hub.connected.listed[eve]) > set(apart.of[EVE.public])
    peers.driver.memory.note_queued(eve, 0)
    assert peers.accountant.size_of(eve) >= 64 * 500
    peers.driver.disconnect(eve)
    assert peers.accountant.total == 0


async def test_drafts_count_no_more_once_their_conversation_has_left_memory(peers: Peers) -> None:
    """Nobody would release them: it is read again without them."""
    driver = peers.driver

    async def draft() -> None:
        eve = await peers.link(EVE)
        driver.hub.shelf[ID].drafts[LANE[0].id] = DraftStream(ID, LANE[0].id, 1)
        await driver.receive(eve, Open(ID, NOBODY), 100)
        driver.disconnect(eve)
        assert peers.accountant.total

    await draft()
    driver.hub.shelf._in_memory_max = 0
    driver._evict()
    assert peers.accountant.total == 0
    await draft()
    await driver.delete(ADA.public, ID)
    assert peers.accountant.total == 0


async def test_a_dropped_stream_ends_with_the_reason_alone() -> None:
    sizes: list[int] = []
    stalls: list[None] = []
    outbox = Outbox(lambda: stalls.append(None), sizes.append)
    frame = Frame(Pong(1, 0, 0), bytes(600))
    for _ in range(4):
        outbox.put(frame)
    assert sizes == [1_200, 2_400]  # changes of less than a kilobyte are not reported
    outbox.drop(QuotaExceeded())
    assert sizes[2:] == [0]
    assert stalls == [None]
    last = outbox._queue.get_nowait()
    assert isinstance(last, Frame)
    closed = last.message
    assert isinstance(closed, Close)
    assert outbox._queue.get_nowait() is None
    assert closed.fault is not None
    assert closed.fault.reason == QuotaExceeded.reason


async def test_a_credit_that_continues_an_answer_waits_and_is_charged(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    eve = await peers.link(EVE)
    peers.driver.throttle.charge(EVE.public, ID, sent_bytes=500 * BURST_UNITS)
    monkeypatch.setattr("syncd.io.throttle.asyncio.sleep", sleep)
    await peers.driver.receive(eve, Credit(2 * limits.CREDIT_BYTES), 0)
    assert len(waited) == 1
