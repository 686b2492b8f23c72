"""Work on a conversation that pauses, at a driver over a store: others are served meanwhile."""

import asyncio
import time
from collections.abc import AsyncIterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

from replica.errors import StoreError
from replica.ids import ConversationId, Digest, PublicKey
from replica.io.blobs.blobs import Blobs
from replica.io.store.store import Store
from replica.link import Frame
from replica.link.messages import Ack, Close, Credit, Entries, Fault, Hello, Message, Open
from replica.log import meter
from replica.log.body import Grant, Member, Revocation, Role
from replica.log.entry import Entry
from replica.refusals import ConversationUnknown, StoreFull
from syncd.hub import Hub
from syncd.io import folds
from syncd.io.driver import HubDriver
from syncd.io.pacer import Pacer
from syncd.links.connected import LinkId
from syncd.policy import Policy
from syncd.shelves import records
from tests.support.callers import PATIENCE_S, until
from tests.support.writers import Writer, said

ADA, BOB, EVE, IDA = (Writer(number) for number in range(1, 5))


class HeldPacer(Pacer):
    """Gives steps to long folds once they are let go on, and none to keys that are held up."""

    def __init__(self, driver: HubDriver) -> None:
        super().__init__(driver.throttle.payer_of)
        self.go_on = asyncio.Event()
        self.held_up: dict[PublicKey, asyncio.Event] = {}

    async def step(self, key: PublicKey) -> None:
        await self.go_on.wait()
        if key in self.held_up:
            await self.held_up[key].wait()
        await super().step(key)


class Scene:
    """Ada's conversation with Bob, who wrote 300 messages, and Eve, who reads."""

    def __init__(self, driver: HubDriver) -> None:
        self.driver, self.sent = driver, dict[LinkId, list[Message]]()
        self.pacer = driver.folds._pacer = HeldPacer(driver)
        self.pacer.go_on.set()
        ada, bob = Writer(1), Writer(2)
        self.genesis = ada.genesis()
        self.id = ConversationId(self.genesis.id)
        grants = [
            ada.write(self.id, Member(Grant(key, role)), parents=[self.genesis])
            for key, role in ((bob.public, Role.WRITER), (EVE.public, Role.READER))
        ]
        self.said = [bob.write(self.id, said("x"), parents=[self.genesis]) for _ in range(300)]
        self.first = (self.genesis, *grants, *self.said)
        self.revocation = ada.write(self.id, Member(Revocation(bob.public)), parents=[grants[-1]])
        self.more = ada.write(self.id, said("more"), parents=[self.genesis])
        self.late = bob.write(self.id, said("late"), parents=[self.genesis])

    async def link(self, key: Writer) -> LinkId:
        sent: list[Message] = []

        def keep(item: object) -> None:
            if isinstance(item, Frame):
                sent.append(item.message)

        link_id = self.driver.connect(key.public, keep)
        self.sent[link_id] = sent
        await self.driver.receive(link_id, Hello((1,)), 0)
        return link_id

    async def send(self, link_id: LinkId, *entries: Entry) -> None:
        await self.driver.receive(link_id, Entries(self.id, entries), 0)

    async def begin(self, link_id: LinkId, *entries: Entry) -> "asyncio.Task[None]":
        """Send entries, and return once their fold pauses."""
        sending = asyncio.create_task(self.send(link_id, *entries))
        await until(lambda: self.is_paused)
        return sending

    @property
    def is_paused(self) -> bool:
        return self.id in self.driver.hub.shelf.folding.held

    def got(self, link_id: LinkId, kind: type[Message]) -> list[Message]:
        return [message for message in self.sent[link_id] if isinstance(message, kind)]

    async def stored(self) -> set[Entry]:
        await self.driver.performer.flush()
        return {entry.id for entry in (await self.driver.store.load(self.id)).entries}


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    async with await Store.open(tmp_path / "log.db") as store:
        driver = HubDriver(Hub(Writer(9).public, Policy()), store, Blobs(tmp_path / "blobs"))
        await driver.start()
        made = Scene(driver)
        await made.send(await made.link(ADA), *made.first)
        await driver.performer.flush()
        made.pacer.go_on.clear()
        monkeypatch.setattr(folds, "STEP_S", -1.0)  # each chance of a pause is taken
        async with asyncio.timeout(PATIENCE_S):
            yield made
            made.pacer.go_on.set()
            await driver.stop()


async def test_others_are_served_while_a_fold_pauses(scene: Scene) -> None:
    ada, ida = await scene.link(ADA), await scene.link(IDA)
    revoking = await scene.begin(ada, scene.revocation)
    own = Writer(4).genesis()
    await scene.driver.receive(ida, Entries(ConversationId(own.id), (own,)), 0)
    await scene.driver.performer.flush()
    assert scene.got(ida, Ack)
    assert not scene.got(ada, Ack)
    scene.pacer.go_on.set()
    await revoking
    await scene.driver.performer.flush()
    assert scene.got(ada, Ack)
    assert not scene.driver.hub.shelf[scene.id].is_member(BOB.public)


async def test_who_may_be_a_member_waits_for_the_end_and_a_stranger_does_not(scene: Scene) -> None:
    ada, again, bob, ida = [await scene.link(key) for key in (ADA, ADA, BOB, IDA)]
    revoking = await scene.begin(ada, scene.revocation)
    waiting = [
        asyncio.create_task(scene.send(again, scene.more)),
        asyncio.create_task(scene.send(bob, scene.late)),
        asyncio.create_task(scene.driver.permitted(BOB.public, scene.id)),
        asyncio.create_task(
            scene.driver.push(ADA.public, Entries(scene.id, (scene.genesis,)), dict)
        ),
    ]
    await scene.driver.receive(ida, Open(scene.id, Digest(bytes(32))), 0)
    (fault,) = scene.got(ida, Fault)
    assert isinstance(fault, Fault)
    assert fault.reason == ConversationUnknown.reason
    assert scene.is_paused
    assert not any(task.done() for task in waiting)
    scene.pacer.go_on.set()
    await asyncio.gather(revoking, *waiting[:2])
    with pytest.raises(ConversationUnknown):
        await waiting[2]
    assert await waiting[3] == {scene.genesis.id: None}
    assert scene.more.id in await scene.stored()
    assert scene.late.id not in await scene.stored(), "Bob was removed when it was judged"


async def test_a_caller_that_leaves_does_not_stop_what_has_begun(scene: Scene) -> None:
    ada = await scene.link(ADA)
    revoking = await scene.begin(ada, scene.revocation)
    revoking.cancel()
    await asyncio.gather(revoking, return_exceptions=True)
    scene.driver.disconnect(ada)
    assert scene.is_paused
    scene.pacer.go_on.set()
    await scene.driver.folds.ended(scene.id)
    assert scene.revocation.id in await scene.stored()
    assert ada not in scene.driver.throttle.answered


async def test_a_push_that_is_cancelled_leaves_nothing_pending(scene: Scene) -> None:
    missing = Writer(1, epoch=2).write(scene.id, said("gone"), parents=[scene.genesis])
    lacking = Writer(1, epoch=3).write(scene.id, said("late"), parents=[missing])
    message = Entries(scene.id, (lacking, scene.revocation))
    pushing = asyncio.create_task(scene.driver.push(ADA.public, message, dict))
    await until(lambda: scene.is_paused)
    pushing.cancel()
    await asyncio.gather(pushing, return_exceptions=True)
    scene.pacer.go_on.set()
    await scene.driver.folds.stop()
    assert scene.revocation.id in await scene.stored()
    assert not scene.driver.hub.shelf[scene.id].log.pending


async def test_a_stop_waits_for_the_end_of_a_fold(scene: Scene) -> None:
    ada = await scene.link(ADA)
    revoking = await scene.begin(ada, scene.revocation)
    stopping = asyncio.create_task(scene.driver.folds.stop())
    scene.pacer.go_on.set()
    await stopping
    await revoking
    assert scene.revocation.id in await scene.stored()


async def test_what_the_disk_refuses_in_a_pause_takes_the_folded_entries_along(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = await scene.link(ADA), await scene.link(BOB)
    may_fail = asyncio.Event()

    async def append(_entries: object, **_given: bool) -> None:
        await may_fail.wait()
        raise StoreFull

    with monkeypatch.context() as patch:
        patch.setattr(scene.driver.store, "append", append)
        await scene.send(bob, scene.late)
        pushing = asyncio.create_task(
            scene.driver.push(ADA.public, Entries(scene.id, (scene.revocation,)), dict)
        )
        await until(lambda: scene.is_paused)
        await scene.driver.receive(ada, Open(ConversationId(bytes(32)), Digest(bytes(32))), 0)
        may_fail.set()
        await until(lambda: scene.driver.counters.commits_refused == 1)
    assert scene.is_paused
    scene.pacer.go_on.set()
    with pytest.raises(StoreError):
        await pushing
    assert await scene.stored() == {entry.id for entry in scene.first}
    assert (await scene.driver.permitted(BOB.public, scene.id)).log.entries.keys() == {
        entry.id for entry in scene.first
    }
    message = Entries(scene.id, (scene.revocation,))
    assert await scene.driver.push(ADA.public, message, dict) == {scene.revocation.id: None}


async def behind(scene: Scene, ada: LinkId, eve: LinkId) -> None:
    """Let Eve open a log of which she has no credit for all."""
    scene.pacer.go_on.set()
    writer = Writer(1, epoch=5)
    long = [writer.write(scene.id, said("x" * 60_000), parents=[scene.genesis]) for _ in range(60)]
    for at in range(0, len(long), 10):
        await scene.send(ada, *long[at : at + 10])
    scene.pacer.go_on.clear()
    await scene.driver.performer.flush()
    await scene.driver.receive(eve, Open(scene.id, Digest(bytes(32)), ()), 0)


async def test_a_reader_that_grants_credit_in_a_pause_gets_the_rest(scene: Scene) -> None:
    ada, eve = await scene.link(ADA), await scene.link(EVE)
    await behind(scene, ada, eve)
    sent = len(scene.got(eve, Entries))
    revoking = await scene.begin(ada, scene.revocation)
    await scene.driver.receive(eve, Credit(1 << 30), 0)
    assert len(scene.got(eve, Entries)) == sent, "the conversation is here for nobody"
    scene.pacer.go_on.set()
    await revoking
    await until(lambda: len(scene.got(eve, Entries)) > sent > 0)


async def test_an_error_in_a_fold_ends_its_call_and_no_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, again = await scene.link(ADA), await scene.link(ADA)
    revoking = await scene.begin(ada, scene.revocation)

    def broken(*_given: object) -> None:
        raise LookupError

    with monkeypatch.context() as patch:
        patch.setattr(scene.driver.hub.shelf.folding.held[scene.id].order, "_drop", broken)
        scene.pacer.go_on.set()
        with pytest.raises(LookupError):
            await revoking
    assert not scene.driver.hub.shelf.folding.held
    await scene.send(again, scene.more)
    assert scene.more.id in await scene.stored()
    log = scene.driver.hub.shelf[scene.id].log
    assert scene.revocation.id not in log.entries, "what was not stored is in no memory"


async def test_a_conversation_whose_fold_is_cut_off_is_read_anew(scene: Scene) -> None:
    ada, again = await scene.link(ADA), await scene.link(ADA)
    revoking = await scene.begin(ada, scene.revocation)
    waiting = asyncio.create_task(scene.send(again, scene.more))
    (fold,) = scene.driver.folds._running
    fold.cancel()
    await asyncio.gather(revoking, return_exceptions=True)
    scene.pacer.go_on.set()
    await waiting
    held = scene.driver.hub.shelf[scene.id]
    assert scene.revocation.id not in held.log.entries
    assert {scene.more.id, *(entry.id for entry in scene.first)} == await scene.stored()


async def test_a_push_of_known_entries_fails_with_the_commit_that_loses_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "TURN_UNITS", 1)
    ada, refused = await scene.link(ADA), asyncio.Event()

    async def append(_entries: object, **_given: bool) -> None:
        await refused.wait()
        raise StoreFull

    with monkeypatch.context() as patch:
        patch.setattr(scene.driver.store, "append", append)
        patch.setattr(folds, "STEP_S", 1e9)
        await scene.send(ada, scene.more)
        patch.setattr(folds, "STEP_S", -1.0)
        message = Entries(scene.id, (scene.more, *scene.said[:3]))
        pushing = asyncio.create_task(scene.driver.push(BOB.public, message, dict))
        await until(lambda: scene.is_paused)
        refused.set()
        await until(lambda: scene.driver.counters.commits_refused == 1)
    scene.pacer.go_on.set()
    with pytest.raises(StoreError):
        await pushing
    assert scene.more.id not in await scene.stored()


async def test_nobody_waits_for_the_readers_of_a_fold_that_is_over(scene: Scene) -> None:
    ada, again, eve = await scene.link(ADA), await scene.link(ADA), await scene.link(EVE)
    await behind(scene, ada, eve)
    scene.pacer.held_up[EVE.public] = asyncio.Event()
    scene.driver._resumes._pacer = scene.pacer
    sent = len(scene.got(eve, Entries))
    revoking = await scene.begin(ada, scene.revocation)
    await scene.driver.receive(eve, Credit(1 << 30), 0)
    waiting = asyncio.create_task(scene.send(again, scene.more))
    scene.pacer.go_on.set()
    await asyncio.gather(revoking, waiting)
    assert scene.driver._resumes._tasks, "the reader still waits for its step"
    assert len(scene.got(eve, Entries)) == sent
    scene.pacer.held_up[EVE.public].set()
    await scene.driver._resumes.ended()
    await scene.driver.performer.flush()
    assert len(scene.got(eve, Entries)) > sent


async def test_a_push_answers_behind_the_commit_of_others_that_brings_what_it_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = await scene.link(BOB)
    gap = Writer(1, epoch=2).write(scene.id, said("gap"), parents=[scene.genesis])
    late = Writer(1, epoch=3).write(scene.id, said("late"), parents=[gap])
    scene.pacer.go_on.set()
    durable, in_parts = asyncio.Event(), scene.driver._loader.in_parts
    append = scene.driver.store.append

    async def held_up(entries: tuple[Entry, ...], **given: bool) -> None:
        await durable.wait()
        await append(entries, **given)

    async def then_others(*given: Any) -> None:
        """Let another member bring the gap between the last part and the answer."""
        monkeypatch.setattr(scene.driver._loader, "in_parts", in_parts)
        await in_parts(*given)
        await scene.send(bob, gap)

    monkeypatch.setattr(scene.driver._loader, "in_parts", then_others)
    monkeypatch.setattr(scene.driver.store, "append", held_up)
    pushing = asyncio.create_task(scene.driver.push(ADA.public, Entries(scene.id, (late,)), dict))
    await until(lambda: late.id in scene.driver.hub.shelf[scene.id].log.entries)
    await asyncio.wait((pushing,), timeout=0)
    assert not pushing.done()
    durable.set()
    assert await pushing == {late.id: None}
    assert late.id in await scene.stored()


async def test_a_link_that_is_idle_too_long_in_a_pause_leaves_nothing_pending(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "TURN_UNITS", 1)
    ada = await scene.link(ADA)
    gap = Writer(1, epoch=2).write(scene.id, said("gap"), parents=[scene.genesis])
    late = Writer(1, epoch=3).write(scene.id, said("late"), parents=[gap])
    sending = await scene.begin(ada, *scene.said[:5], late)
    scene.driver._submit(scene.driver.hub.handle_deadlines(time.monotonic() + 10_000))
    scene.pacer.go_on.set()
    await sending
    scene.driver.disconnect(ada)
    assert not scene.driver.hub.shelf[scene.id].log.pending


async def test_conversations_that_begin_in_pauses_count_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "TURN_UNITS", 1)
    monkeypatch.setattr(scene.driver.hub.bringers, "_key_max", 3)
    pushes = []
    for number in range(6):
        genesis = Writer(4, epoch=number + 1).genesis()
        message = Entries(ConversationId(genesis.id), (genesis,))
        pushes.append(asyncio.create_task(scene.driver.push(IDA.public, message, dict)))
    await asyncio.wait(pushes, timeout=0)
    scene.pacer.go_on.set()
    outcomes = [fault for push in pushes for fault in (await push).values()]
    assert sum(fault is None for fault in outcomes) == 3
    assert scene.driver.hub.bringers.brought(IDA.public) == 3


async def test_a_reader_whose_revocation_the_disk_refuses_is_told_so(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.pacer.go_on.set()
    ada, bob = await scene.link(ADA), await scene.link(BOB)
    digest = scene.driver.hub.shelf[scene.id].log.digest
    await scene.driver.receive(bob, Open(scene.id, digest), 0)

    async def append(_entries: object, **_given: bool) -> None:
        raise StoreFull

    with monkeypatch.context() as patch:
        patch.setattr(scene.driver.store, "append", append)
        await scene.send(ada, scene.revocation)
        await until(lambda: scene.driver.counters.commits_refused == 1)
        await until(lambda: bool(scene.got(bob, Close)))
    (close,) = scene.got(bob, Close)
    assert isinstance(close, Close)
    assert close.fault is not None
    assert close.fault.reason == StoreFull.reason, "he is a member still, and comes again"
    assert (await scene.driver.permitted(BOB.public, scene.id)).is_member(BOB.public)


async def test_the_record_of_a_conversation_stays_while_its_fold_pauses(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "READ_ENTRIES_MAX", 0)
    keeper, stored = scene.driver._keeper, scene.driver.store.records
    assert await keeper.write_unchanged(inf)
    await scene.begin(await scene.link(ADA), scene.revocation)
    keeper._unrecorded.note((scene.id,), 0.0)
    await keeper.write_unchanged(inf)
    assert (await stored.load()).keys() == {scene.id}
    assert keeper._unrecorded.take(inf, 1) == [scene.id], "it is looked at again"
