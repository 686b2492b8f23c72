"""Whether all conversations are in sync: those stored here, and those that the hub lists."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import antiphon
from antiphon.library.io.all_synced import AllSynced
from replica.ids import ConversationId
from replica.link import Event, Forgotten
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.antiphon.library.conftest import Lab

FORMS = ["blocking"]

ROUNDS = 20
A, B, C = (ConversationId(bytes([i]) * 32) for i in range(3))


class Status:
    """The status of a hub in whose words conversations are in sync one after another."""

    def __init__(self) -> None:
        self.is_linked = True
        self.compared: list[ConversationId] = []
        self.synced: set[ConversationId] = set()
        self.denied: set[ConversationId] = set()
        self.ended: set[ConversationId] = set()
        self.looks = 0

    def unsynced(self, _conversation: ConversationId) -> int:
        return 0

    def compare(self, conversation: ConversationId) -> float:
        self.compared.append(conversation)
        return float(len(self.compared))

    def is_in_sync(self, conversation: ConversationId, since: float) -> bool:
        self.looks += 1
        return conversation in self.synced and since > self.compared.index(conversation)

    def denial(self, conversation: ConversationId) -> object:
        return True if conversation in self.denied else None

    def ending(self, conversation: ConversationId) -> object:
        return True if conversation in self.ended else None


def begun(hub: Status, stored: list[ConversationId], listed: set[ConversationId]) -> AllSynced:
    """Compare those stored with a hub that lists others."""
    synced = AllSynced(hub, listed)  # type: ignore[arg-type]
    synced.begin(stored)
    return synced


async def test_one_that_is_deleted_while_those_stored_are_read_is_left_out() -> None:
    """It was waited for until the timeout: the deletion came before anybody listened."""
    hub, heard = Status(), []
    hub.synced = {B}

    def listen(listener: Callable[[Event], None]) -> Callable[[], None]:
        heard.append(listener)
        return heard.clear

    async def has(_conversation: ConversationId) -> bool:
        return False

    async def wait_for(is_done: Callable[[], bool], _timeout_s: float) -> bool:
        return is_done()

    async def stored() -> list[ConversationId]:
        for listener in heard:
            listener(Forgotten(A))
        return [A, B]

    replica: Any = SimpleNamespace(listen=listen, wait_for=wait_for)
    replica.store = SimpleNamespace(has=has)
    assert await AllSynced(hub, {A}).wait(replica, stored, 1.0)  # type: ignore[arg-type]
    assert not heard


def test_each_is_compared_once_when_it_is_known() -> None:
    hub, listed = Status(), {A}
    synced = begun(hub, [A, B], listed)
    assert sorted(hub.compared) == [A, B]
    hub.synced = {A, B}
    listed.add(C)
    assert not synced.is_done()
    assert sorted(hub.compared) == [A, B, C]
    hub.synced.add(C)
    assert synced.is_done()
    hub.is_linked = False
    assert not synced.is_done()


def test_what_the_hub_never_takes_again_is_left_out() -> None:
    hub = Status()
    synced = begun(hub, [A, B], {C})
    hub.synced, hub.ended, hub.denied = {A}, {B}, {C}
    assert synced.is_done()
    of_denied = begun(hub, [C], set())
    assert not of_denied.is_done()  # it is here, and the hub may take it later


def test_many_are_looked_at_once_each() -> None:
    hub = Status()
    many = [ConversationId(i.to_bytes(32, "big")) for i in range(1_000)]
    synced = begun(hub, many, set(many))
    for one in sorted(many):
        hub.synced.add(one)
        synced.is_done()
    assert synced.is_done()
    assert hub.looks < 3 * len(many)


async def test_entries_that_the_hub_refuses_are_not_in_sync(tmp_path: Path):
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0", entries_max=4))
    try:
        async with antiphon.aio.open(tmp_path / "me", hub=hub.address) as me:
            trip = await me.conversation("trip")
            assert await me.sync()
            for number in range(4):
                await trip.say(f"note {number}")
            assert (await trip.sync(), await me.sync()) == (False, False)
    finally:
        await hub.stop()


async def test_a_conversation_that_was_just_granted_is_synced_at_once(lab: Lab):
    async with lab.open() as ada, lab.open("bob") as bob:
        for number in range(ROUNDS):
            plan = await ada.conversation(str(number))
            await plan.grant(bob.key)
            assert await plan.sync()
            async with asyncio.timeout(5.0):
                assert await bob.sync()
            assert (await bob.get(plan.id)).id == plan.id


async def test_a_member_who_writes_meanwhile_is_in_sync_nevertheless(lab: Lab):
    async with lab.open() as ada:
        plan = await ada.conversation("plan")

        async def write() -> None:
            for number in range(ROUNDS):
                await plan.say(str(number))

        writing = asyncio.create_task(write())
        while not writing.done():
            assert await plan.sync()
        await writing
