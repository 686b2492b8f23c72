"""What is said of a host of whose answer nothing is heard."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from antiphon.cli.common import HostPresence, host_presence
from replica.ids import ConversationId, PublicKey
from tests.support.callers import until

HOST = PublicKey(b"h" * 32)
REASON = "STORE_FAILED"


class Scene:
    """A hub whose hosts are given, and a host that answers once it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosts = [SimpleNamespace(key=HOST, info=SimpleNamespace(address="127.0.0.1:1"))]
        self.asked, self.told = asyncio.Event(), asyncio.Event()
        hub = SimpleNamespace(is_linked=True, learn=lambda _found: None)
        replica: Any = SimpleNamespace(shelf={}, hub=hub, calls=lambda: None)
        self.presence = HostPresence(replica, ConversationId(b"c" * 32))
        monkeypatch.setattr(host_presence, "SILENCE_S", 0.0)
        monkeypatch.setattr(host_presence, "ASK_EVERY_S", 0.0)
        monkeypatch.setattr(host_presence, "hosts_of", self._hosts_of)
        monkeypatch.setattr(host_presence, "hindrance", self._hindrance)

    async def _hosts_of(self, _calls: object) -> Any:
        return tuple(self.hosts)

    async def _hindrance(self, *_what: object) -> str:
        self.asked.set()
        await self.told.wait()
        return REASON


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Scene(monkeypatch)
    yield made
    await made.presence.stop()


async def test_what_a_host_said_before_the_last_news_is_not_said_of_it(scene: Scene):
    assert scene.presence.delay(HOST) == ""
    await scene.asked.wait()
    asking = scene.presence._asking
    scene.presence.note_news()  # it goes on
    scene.told.set()
    await asking
    assert scene.presence._hindrances == {}
    await until(lambda: REASON in scene.presence.delay(HOST))


async def test_a_host_that_stands_still_keeps_nobody_from_learning_that_it_has_left(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(host_presence, "HOST_WAIT_S", 0.01)
    assert scene.presence.delay(HOST) == ""
    await scene.asked.wait()
    scene.hosts.clear()
    await until(lambda: scene.presence.delay(HOST) == host_presence.GONE)
