"""What `antiphon log -f` takes from a hub, which may say anything."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from antiphon.cli.commands import follow as followed
from antiphon.v1 import sync_pb2 as pb
from replica import limits
from replica.conversation import Conversation
from replica.io import Store
from replica.log import Request, Sampling
from tests.support.callers import until
from tests.support.lying_hub import LyingHub, lying_hub, shown
from tests.support.writers import Writer, said

ADA = Writer(1)
HOST = Writer(6)


@pytest.fixture
async def hub() -> AsyncIterator[LyingHub]:
    async with lying_hub() as serving:
        yield serving


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "log.db") as opened:
        yield opened


def session(hub: LyingHub) -> Any:
    settings = SimpleNamespace(hub=hub.address)
    return SimpleNamespace(settings=settings, key=lambda: ADA.key, out=SimpleNamespace(note=print))


def refusal(reason: str) -> status_pb2.Status:
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="antiphon.v1"))
    return status_pb2.Status(code=14, message="words", details=[detail])


async def test_a_hub_that_ends_each_watch_at_once_is_asked_again_after_a_pause(
    hub: LyingHub, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may say that the Watch was idle, too."""
    monkeypatch.setattr(followed, "RETRY_S", 3600.0)
    hub.watch_fails = refusal("LINK_IDLE")
    genesis = ADA.genesis()
    held = Conversation.restore(genesis.conversation, [genesis])
    async with aclosing(followed.follow(session(hub), store, held)) as entries:
        waiting = asyncio.create_task(anext(entries))
        await until(lambda: hub.watches > 0)
        asking = followed.HubCalls(hub.address, ADA.key, store)
        for _ in range(50):
            await asking.proved_key()
        await asking.close()
        watches = hub.watches
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert watches == 1


async def test_entries_of_a_hub_that_lack_others_are_held_back_up_to_a_bound(
    hub: LyingHub, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PENDING_LINK_BYTES_MAX", 8 * limits.PENDING_ENTRY_BYTES_MIN)
    genesis = ADA.genesis()
    id_ = genesis.conversation
    request = ADA.write(id_, Request(HOST.public, Sampling()), parents=[genesis])
    never_sent = ADA.write(id_, said("?"), parents=[request])
    lacking = [ADA.write(id_, said(str(n)), parents=[never_sent]) for n in range(40)]
    eve = Writer(1, epoch=7)
    news = eve.write(id_, said("news"), parents=[genesis])

    def told(_request: object) -> list[pb.WatchResponse]:
        return [*(shown(entry) for entry in lacking), shown(news)]

    hub.entries, hub.events = [request], told
    held = Conversation.restore(id_, [genesis])
    async with aclosing(followed.follow(session(hub), store, held)) as entries:
        assert await anext(entries) == news
        assert len(held.log.pending) <= 8
