"""Persist, then show; and the work that fails with a refused commit (spec/04-link §7)."""

import asyncio
from collections.abc import Sequence, Set
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from replica.errors import ReplicaClosed, StoreError
from replica.ids import ConversationId
from replica.io.driver import performer as performer_module
from replica.io.driver.performer import GATHER_QUIET_TURNS, Performer
from replica.io.store.store import Store
from replica.log.entry import Entry
from replica.refusals import StoreFull
from tests.replica.io.store.test_store import log
from tests.support.writers import Writer, said

SMALL = 1_000_000


class World:
    """A performer over a small disk, with the work it performed and undid."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.shown: list[str] = []
        self.undone: list[Set[ConversationId]] = []
        self.performer = Performer(store, lambda _error, lost: self.undone.append(lost))

    def submit(self, what: str, entries: list[Entry], about: ConversationId | None = None):
        def show(lost: Set[ConversationId]) -> None:
            if not lost & concerned:
                self.shown.append(what)

        concerned = {e.conversation for e in entries} | ({about} if about else set())
        return self.performer.submit(tuple(entries), show, concerned)


@asynccontextmanager
async def world(folder: Path):
    async with await Store.open(folder / "log.db", bytes_max=SMALL) as store:
        made = World(store)
        made.performer.start()
        yield made
        await made.performer.stop()


def too_much(seed: int) -> list[Entry]:
    """A log that does not fit a disk of SMALL bytes."""
    writer = Writer(seed)
    entries = [writer.genesis()]
    for _ in range(100):
        entries.append(
            writer.write(entries[0].conversation, said("x" * 20_000), parents=[entries[-1]])
        )
    return entries


async def test_work_without_entries_waits_for_no_commit(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        here.submit("a draft", [])
        for _ in range(3):
            await asyncio.sleep(0)
        assert here.shown == ["a draft"]


async def test_work_that_depends_on_a_refused_commit_fails_with_it(tmp_path: Path) -> None:
    big = too_much(1)
    async with world(tmp_path) as here:
        writing = here.submit("written", big)
        again = here.submit("known already", [], about=big[0].conversation)
        flushed = here.performer.submit((), lambda _lost: None, None)
        for future in (writing, again, flushed):
            with pytest.raises(StoreFull):
                await future
        assert here.shown == []
        assert here.undone == [{big[0].conversation}]


async def test_work_independent_of_a_refused_commit_is_performed(tmp_path: Path) -> None:
    other = Writer(2).genesis()
    async with world(tmp_path) as here:
        writing = here.submit("written", too_much(1))
        greeting = here.submit("welcome", [], about=other.conversation)
        await greeting
        await here.performer.flush(other.conversation)
        with pytest.raises(StoreFull):
            await writing
        assert here.shown == ["welcome"]
        await here.submit("written later", [other])
        assert here.shown == ["welcome", "written later"]
        assert (await here.store.load(other.conversation)).entries == [other]


async def test_a_refused_commit_is_undone_before_anything_is_shown(tmp_path: Path) -> None:
    """What is shown of it may name the refusal, and be decided by the state that is left."""
    steps: list[str] = []
    async with await Store.open(tmp_path / "log.db", bytes_max=SMALL) as store:
        performer = Performer(store, lambda _error, _lost: steps.append("undone"))
        performer.start()
        with pytest.raises(StoreFull):
            await performer.submit(tuple(too_much(1)), lambda _lost: steps.append("shown"))
        await performer.stop()
    assert steps == ["undone", "shown"]


async def test_the_end_waits_for_the_work_that_is_queued(tmp_path: Path) -> None:
    genesis = Writer(1).genesis()
    async with world(tmp_path) as here:
        written = here.submit("written", [genesis])
    assert written.done()
    assert here.shown == ["written"]
    async with await Store.open(tmp_path / "log.db") as store:
        assert (await store.load(genesis.conversation)).entries == [genesis]


async def test_callers_that_wait_for_a_broken_performer_get_an_error(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        broken = here.performer.submit((), lambda _lost: {}.pop("bug"), set())  # a bug of ours
        queued = here.submit("never", [])
        for future in (broken, queued):
            with pytest.raises(StoreError):
                await future
        with pytest.raises(KeyError):
            await here.performer.failed()
        with pytest.raises(StoreError):
            here.submit("never", [])
        assert here.shown == []


async def test_work_behind_the_end_is_refused_as_that_of_a_closed_replica(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.submit("before", [])
    with pytest.raises(ReplicaClosed):
        w.submit("behind", [])
    assert w.shown == ["before"]


async def test_a_commit_in_which_all_tasks_are_cancelled_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genesis, *entries = log(2)
    async with world(tmp_path) as here:
        append, begun = here.store.append, asyncio.Event()

        async def slowly(some: Sequence[Entry], **given: bool) -> None:
            begun.set()
            await append(some, **given)

        monkeypatch.setattr(here.store, "append", slowly)
        written = here.submit("written", [genesis])
        await begun.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # the writer of the store is one of them
        behind = here.submit("behind it", entries)
        await asyncio.gather(written, behind)
        assert here.shown == ["written", "behind it"]
        assert (await here.store.load(genesis.conversation)).entries == [genesis, *entries]


async def test_an_append_waits_for_others_only_behind_a_commit_that_several_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genesis, *entries = log(5)
    async with world(tmp_path) as here:
        gathered = 0

        async def gather() -> None:
            nonlocal gathered
            gathered += 1

        monkeypatch.setattr(here.performer, "_gather", gather)
        await here.submit("alone", [genesis])
        await here.submit("alone too", [entries[0]])
        assert gathered == 0
        await asyncio.gather(*(here.submit("together", [one]) for one in entries[1:3]))
        assert gathered == 0
        await here.submit("behind them", [entries[3]])
        assert gathered == 1
        await here.submit("alone again", [entries[4]])
        assert gathered == 1


@pytest.mark.parametrize("gather_s", [60.0, 0.0])
async def test_other_work_does_not_delay_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gather_s: float
) -> None:
    """Work without entries never does; work with entries only for a time."""
    monkeypatch.setattr(performer_module, "GATHER_S", gather_s)
    entries = () if gather_s else (Writer(1).genesis(),)
    async with await Store.open(tmp_path / "log.db") as store:
        performer, turns = Performer(store, lambda _error, _lost: None), 0

        async def ask_much() -> None:
            nonlocal turns
            while turns < 1_000:
                turns += 1
                performer.submit(entries, lambda _lost: None)
                await asyncio.sleep(0)

        asking = asyncio.create_task(ask_much())
        await performer._gather()
        asking.cancel()
        assert turns <= 2 * GATHER_QUIET_TURNS


async def test_work_that_writes_nothing_is_performed_at_once_where_nothing_waits(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here:
        assert here.submit("at once", []).done()
        assert here.shown == ["at once"]
        written = here.submit("written", [Writer(1).genesis()])
        behind = here.submit("behind it", [])
        assert not behind.done()
        await asyncio.gather(written, behind)
        assert here.shown == ["at once", "written", "behind it"]


async def test_work_submitted_by_work_comes_behind_it(tmp_path: Path) -> None:
    async with world(tmp_path) as here:

        def show_two(_lost: Set[ConversationId]) -> None:
            inner.append(here.submit("inner", []))
            here.shown.append("outer")

        inner = list[asyncio.Future[None]]()
        assert here.performer.submit((), show_two, set()).done()
        await inner[0]
        assert here.shown == ["outer", "inner"]
