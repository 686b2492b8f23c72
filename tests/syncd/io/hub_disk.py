"""The folder of a hub that is killed again and again, and what tests store in it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path

from replica.conversation.entry_store import Loaded, Stored
from replica.ids import ConversationId, PublicKey
from replica.io.blobs.blobs import Blobs
from replica.io.store.readonly import open_read_only
from replica.io.store.store import Store
from replica.link.messages import Entries
from replica.log.body import Grant, Member, Request, Revocation, Role, Sampling
from replica.log.entry import Entry
from syncd.hub import Hub
from syncd.io.driver import HubDriver
from syncd.policy import Policy
from tests.support.files import query
from tests.support.writers import Writer, said


class CountedStore(Store):
    """A store that notes what is loaded from it."""

    loaded: list[ConversationId]

    async def load(self, conversation: ConversationId, *, bodies: bool = True) -> Loaded:
        self.loaded.append(conversation)
        return await super().load(conversation, bodies=bodies)


class Talk:
    """A conversation of one writer, as the tests know it."""

    def __init__(self, number: int, count: int = 5) -> None:
        self.writer = Writer(number)
        self.entries: list[Entry] = [self.writer.genesis()]
        self.id = self.entries[0].conversation
        self.granted = self.entries[0]
        self.said = self.entries[0]
        for text in range(count):
            self.say(str(text))

    def grant(self, key: PublicKey, role: Role = Role.READER) -> Entry:
        """Grant a role behind the last change of the membership."""
        return self._change(Member(Grant(key, role)))

    def revoke(self, key: PublicKey) -> Entry:
        """Revoke a key behind the last change of the membership."""
        return self._change(Member(Revocation(key, ())))

    def say(self, text: str) -> Entry:
        """Say something behind what was said last."""
        self.said = self.writer.write(self.id, said(text), parents=[self.said])
        self.entries.append(self.said)
        return self.said

    def ask(self, host: PublicKey) -> Entry:
        """Ask a host to answer what was said last."""
        request = self.writer.write(self.id, Request(host, Sampling()), parents=[self.said])
        self.entries.append(request)
        return request

    def _change(self, change: Member) -> Entry:
        self.granted = self.writer.write(self.id, change, parents=[self.granted])
        self.entries.append(self.granted)
        return self.granted


class Disk:
    """The folder of a hub that is killed again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "log.db"

    @asynccontextmanager
    async def started(self, **policy: int) -> AsyncIterator[tuple[HubDriver, CountedStore]]:
        """Start a hub; it ends as by SIGKILL, without a stop: what is committed is there."""
        async with await CountedStore.open(self.path) as store:
            store.loaded = []
            hub = Hub(Writer(9).public, Policy(**policy))
            driver = HubDriver(hub, store, Blobs(self.folder / "blobs"))
            await driver.start()
            try:
                yield driver, store
            finally:
                for task in (driver._ticker, driver._keeper._task):
                    assert task is not None
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                await driver.performer.stop()

    async def fill(self, *talks: Talk) -> None:
        """Store conversations at a hub that ends some seconds later."""
        async with self.started() as (driver, _):
            for talk in talks:
                await push(driver, talk, *talk.entries)
            await later(driver)

    @property
    def records(self) -> int:
        rows = query(self.path, "SELECT count(*) FROM meta WHERE key LIKE 'record of %'")
        return int(rows[0][0])


async def push(driver: HubDriver, talk: Talk, *entries: Entry) -> None:
    await driver.push(talk.writer.public, Entries(talk.id, entries), dict)


async def later(driver: HubDriver) -> None:
    """Let some seconds pass, in which nothing changes."""
    while await driver._keeper.write_unchanged(inf):
        pass


async def stored_records(disk: Disk) -> dict[ConversationId, bytes]:
    async with await Store.open(disk.path) as store:
        return await store.records.load()


async def stored_logs(disk: Disk) -> list[Stored]:
    async with open_read_only(disk.path) as store:
        return await store.conversations()
