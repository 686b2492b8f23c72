"""The hub's driver: evicted conversations, and those that must stay in memory."""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from weakref import ref

import pytest

from replica.ids import Digest, PublicKey
from replica.io.blobs.blobs import Blobs
from replica.io.store.store import Store
from replica.link import Frame
from replica.link.messages import Close, Credit, Entries, Hello, Ids, Open, Opened
from replica.link.steps import STEP_HEADS
from replica.refusals import StoreFull
from syncd.hub import Hub
from syncd.io.driver import HubDriver
from syncd.io.pacer import Pacer
from syncd.links.listing import list_of
from syncd.policy import Policy
from tests.support.callers import PATIENCE_S, until
from tests.support.files import full_disk
from tests.support.writers import Writer, said

ADA = Writer(1)
GENESES = [Writer(1, epoch=number).genesis() for number in range(1, 5)]
IDS = [genesis.conversation for genesis in GENESES]


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[HubDriver]:
    """Run a driver with capacity for one of its four conversations."""
    async with await Store.open(tmp_path / "log.db") as store:
        await store.append(GENESES)
        hub = Hub(Writer(9).public, Policy(conversations_in_memory_max=1))
        driver = HubDriver(hub, store, Blobs(tmp_path / "blobs"))
        await driver.start()
        yield driver
        await driver.stop()


async def test_a_start_fills_memory_and_no_more(driver: HubDriver):
    assert len(driver.hub.shelf) == 1
    assert len(list_of(driver.hub.shelf, ADA.public)) == len(IDS)


async def test_a_conversation_loaded_for_a_caller_is_in_memory_when_the_caller_runs(
    driver: HubDriver,
):
    """If all others are open on links, the newly loaded one is the only one to evict."""
    link_id = driver.connect(ADA.public, lambda _item: None)
    await driver.receive(link_id, Hello((1,)), 0)
    async with asyncio.timeout(PATIENCE_S):
        for conversation in IDS:
            await driver.receive(link_id, Open(conversation, Digest(bytes(32))), 0)
        assert set(driver.hub.shelf) == set(IDS)


class CountedPacer(Pacer):
    """Counts the steps that it gives."""

    steps = 0

    async def step(self, key: PublicKey) -> None:
        self.steps += 1
        await super().step(key)


async def test_many_heads_are_compared_in_steps(driver: HubDriver):
    pacer = driver._loader._pacer = CountedPacer(driver.throttle.payer_of)
    link_id = driver.connect(ADA.public, lambda _item: None)
    await driver.receive(link_id, Hello((1,)), 0)
    for heads, steps in ((STEP_HEADS, 0), (4 * STEP_HEADS, 5)):
        pacer.steps = 0
        asked = Open(IDS[0], Digest(bytes(32)), (GENESES[0].position,) * heads)
        await driver.receive(link_id, asked, 0)
        assert pacer.steps == steps


async def test_an_answer_with_many_heads_is_encoded_in_steps(driver: HubDriver):
    (genesis, *_), lanes = GENESES, range(2, STEP_HEADS + 2)
    said_in = [Writer(1, epoch=epoch) for epoch in lanes]
    new = [one.write(IDS[0], said("x"), parents=[genesis]) for one in said_in]
    await driver.push(ADA.public, Entries(IDS[0], tuple(new)), dict)
    pacer = driver._loader._pacer = CountedPacer(driver.throttle.payer_of)
    sent: list[object] = []
    link_id = driver.connect(ADA.public, sent.append)
    await driver.receive(link_id, Hello((1,)), 0)
    pacer.steps = 0
    await driver.receive(link_id, Open(IDS[0], Digest(bytes(32))), 0)
    await driver.performer.flush()
    assert pacer.steps == 3
    assert any(isinstance(one, Frame) and isinstance(one.message, Opened) for one in sent)


async def test_what_is_not_among_many_ids_is_looked_for_in_steps(driver: HubDriver):
    (genesis, *_), count = GENESES, 2 * STEP_HEADS
    new = [genesis]
    for _ in range(count):
        new.append(ADA.write(IDS[0], said("x"), parents=new[-1:]))
    await driver.push(ADA.public, Entries(IDS[0], tuple(new)), dict)
    pacer = driver._loader._pacer = CountedPacer(driver.throttle.payer_of)
    sent: list[object] = []
    link_id = driver.connect(ADA.public, sent.append)
    await driver.receive(link_id, Hello((1,)), 0)
    await driver.receive(link_id, Open(IDS[0], Digest(bytes(32)), (new[-1].position,)), 0)
    for more, steps in ((True, 0), (False, 3)):
        pacer.steps = 0
        await driver.receive(link_id, Ids(IDS[0], tuple(e.id for e in new[1:]), more), 0)
        assert pacer.steps == steps
    await driver.receive(link_id, Open(IDS[0], Digest(bytes(32)), ()), 0)
    pacer.steps = 0
    await driver.receive(link_id, Credit(2**40), 0)  # goes on with the answer
    assert pacer.steps > 0


async def test_a_repeated_entry_fails_with_the_commit_that_brings_it(driver: HubDriver):
    """It is in the log already, and on no disk yet."""
    entry = Writer(1, epoch=20).write(IDS[0], said("x" * 100_000), parents=[GENESES[0]])
    message = Entries(IDS[0], (entry,))
    async with full_disk(driver.store):
        pushes = (driver.push(ADA.public, message, dict) for _ in range(2))
        refused = await asyncio.gather(*pushes, return_exceptions=True)
    assert [type(one) for one in refused] == [StoreFull] * 2
    assert await driver.push(ADA.public, message, dict) == {entry.id: None}


async def test_nothing_is_told_of_entries_that_the_disk_refuses(driver: HubDriver):
    entry = Writer(1, epoch=21).write(IDS[0], said("x" * 100_000), parents=[GENESES[0]])
    told: dict[bool, list[object]] = {False: [], True: []}
    for watches, items in told.items():
        link_id = driver.connect(ADA.public, items.append, watches=watches)
        await driver.receive(link_id, Hello((1,)), 0)
        await driver.receive(link_id, Open(IDS[0], Digest(bytes(32)), (GENESES[0].position,)), 0)
    writer = driver.connect(ADA.public, told[False].append)
    await driver.receive(writer, Hello((1,)), 0)
    async with full_disk(driver.store):
        for items in told.values():
            items.clear()
        await driver.receive(writer, Entries(IDS[0], (entry,)), 0)
        with pytest.raises(StoreFull):
            await driver.performer.flush()
    items = [*told[False], *told[True]]
    kinds = {type(item.message if isinstance(item, Frame) else item) for item in items}
    assert kinds == {Close}


async def test_memory_is_bounded_again_after_each_frame(driver: HubDriver):
    for genesis in GENESES:
        message = Entries(genesis.conversation, (genesis,))
        assert await driver.push(ADA.public, message, dict) == {genesis.id: None}
    await until(lambda: len(driver.hub.shelf) == 1)


async def test_an_evicted_conversation_is_freed_at_once(driver: HubDriver):
    links = [driver.connect(ADA.public, lambda _item: None, watches=bool(n)) for n in range(2)]
    for link_id in links:
        await driver.receive(link_id, Hello((1,)), 0)
        await driver.receive(link_id, Open(IDS[0], Digest(bytes(32)), ()), 0)
        entry = Writer(1, epoch=10 + link_id).write(IDS[0], said("x"), parents=[GENESES[0]])
        await driver.receive(link_id, Entries(IDS[0], (entry,)), 0)
    await driver.performer.flush()
    held = ref(driver.hub.shelf[IDS[0]]), ref(driver.hub.shelf[IDS[0]].log)
    gc.collect()
    gc.disable()
    try:
        for link_id in links:
            driver.disconnect(link_id)
        await driver.permitted(ADA.public, IDS[1])
        driver._evict()
        await asyncio.sleep(0)
        assert IDS[0] not in driver.hub.shelf
        assert [one() for one in held] == [None, None]
    finally:
        gc.enable()
