"""One run without an engine: what is shown of it, also where the journal fails."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from model_host.batching import Chosen, Computed, Ended, Found, Job
from model_host.generation import JournalHead
from model_host.io.answers import run_driver
from model_host.io.answers.run_driver import RunDriver
from model_host.io.answers.run_table import RunTable
from model_host.io.files.journal import Journals
from model_host.io.threads.engine_thread import EngineThread, Receive
from model_host.sampling import Choice
from replica.conversation import Draft
from replica.errors import StoreError
from replica.ids import Digest, EntryId
from tests.model_host.planned import Scene
from tests.model_host.replay.replayed import run_of
from tests.support.files import file_size_limit

HALF_A_RECORD = 3


class Tokens:
    """An engine whose tokens come apart: each is in a frame of its own."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    async def compute(self, job: Job, receive: Receive) -> None:
        for token_id in self.ids:
            is_first = not job.run.token_ids
            receive([Chosen(Choice(token_id), job.run.add_token(token_id), is_first)])
        receive([Ended()])


class Driven:
    """A run of so many tokens at most, its journal in a folder, and its driver over an engine."""

    def __init__(
        self, folder: Path, engine: object, *, tokens: int, show: Callable[[Draft], None]
    ) -> None:
        self.scene = Scene()
        self.request = self.scene.ask(output_tokens_max=tokens)
        self.planned = self.scene.plan(self.request)
        seal = self.scene.host_writes(self.planned.seal, self.request)
        self.run = run = run_of(self.planned, seal)
        head = JournalHead(self.request, run.seal_id, run.run, Digest(bytes(32)), Digest(bytes(32)))
        self.journals = Journals(folder)
        self.journal = self.journals.create(head)
        runs = cast(RunTable, SimpleNamespace(sign=lambda frame: frame, show=show))
        host = cast(EngineThread, engine)
        self.driver = RunDriver(host, self.scene.held, run, self.journal, runs)

    async def finish(self, journaled: list[Choice] | None = None) -> None:
        await self.driver.finish(journaled, owner=b"", domain=b"", namespace=b"")


async def test_behind_a_failed_write_no_token_is_shown_that_the_journal_lacks(tmp_path) -> None:
    shown: list[Draft] = []
    driven = Driven(tmp_path, Tokens([65, 66, 67]), tokens=5, show=shown.append)
    journal, request = driven.journal, driven.request
    append, calls = journal.append, list[int]()

    def filling(choices) -> None:
        calls.append(len(choices))
        size = (tmp_path / f"{request.hex()}.journal").stat().st_size
        if len(calls) == 2:  # a disk that is full for this one write
            with file_size_limit(size + HALF_A_RECORD):
                append(choices)
        append(choices)

    journal.append = filling  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        await driven.finish()
    journal.close()
    found = driven.journals.read(EntryId(request))
    assert found is not None
    kept = tuple(choice.token_id for choice in found[1])
    told = tuple(token_id for frame in shown for token_id in frame.token_ids)
    assert told and told == kept[: len(told)]


class Prompt:
    """An engine that finds half of the prompt in others' pages, and computes the rest twice."""

    async def compute(self, job: Job, receive: Receive) -> None:
        rest = len(job.ids) // 2
        receive([Found(0, 0, len(job.ids) - rest)])
        for count in (1, rest - 1, rest):
            receive([Computed(count)])
        receive([Ended()])


async def test_progress_shows_neither_pages_of_others_nor_more_than_the_prompt(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_driver, "PROGRESS_EVERY_S", 0)
    shown: list[Draft] = []
    driven = Driven(tmp_path, Prompt(), tokens=5, show=shown.append)
    await driven.finish()
    driven.journal.close()
    size = len(driven.planned.prompt)
    told = [frame.progress.prefilled_tokens for frame in shown if frame.progress]
    assert told == [0, size // (size // 2), size, size]
    assert driven.driver.view.computed_tokens == size


async def test_the_tokens_of_a_long_resumed_run_leave_turns_to_others(tmp_path) -> None:
    turn, shown = 0, Counter[int]()

    def show(frame: Draft) -> None:
        shown.update({turn: len(frame.token_ids)})

    driven = Driven(tmp_path, Tokens([]), tokens=1_000, show=show)
    journaled = [Choice(65)] * 100
    replay = asyncio.create_task(driven.finish(journaled))
    while not replay.done():
        await asyncio.sleep(0)
        turn += 1
    await replay
    assert shown.total() == len(journaled)
    assert max(shown.values()) <= run_driver.REPLAYED_PER_TURN


async def test_a_run_whose_last_token_is_journaled_is_not_computed(tmp_path) -> None:
    """As after a crash between its last token and its entry."""
    shown: list[Draft] = []
    driven = Driven(tmp_path, None, tokens=3, show=shown.append)
    await driven.finish([Choice(65)] * 3)
    assert driven.run.finished is not None
    assert [token_id for frame in shown for token_id in frame.token_ids] == [65] * 3
