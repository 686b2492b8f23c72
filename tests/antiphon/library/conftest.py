"""A hub, a scripted host, and replicas opened in either form of the library."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from replica.ids import ConversationId
from replica.io import keys
from replica.log.entry import public_key
from syncd.io.config import HubConfig
from syncd.io.server import HubServer, start
from tests.support.forms import opened
from tests.support.scripted_host import (
    Pace,
    Reply,
    ScriptedHost,
    echo,
    no_pause,
    scripted_host,
)


@dataclass
class Lab:
    """One hub and its hosts; `form` is that of the replicas it opens."""

    folder: Path
    form: str
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    hub: HubServer | None = None
    running: ScriptedHost | None = None

    async def start_hub(self, *, vouches: bool = True, **limits: Any) -> HubServer:
        """Start the hub, with other limits than its defaults; it vouches for the host."""
        key = public_key(keys.load_or_create(self.folder / "host" / "identity.key"))
        host_keys = [key.hex()] if vouches else []
        config = HubConfig(
            data_dir=self.folder / "hub", listen="127.0.0.1:0", host_keys=host_keys, **limits
        )
        self.hub = await start(config)
        self.stack.push_async_callback(self.hub.stop)
        return self.hub

    async def start_host(self, reply: Reply = echo, pace: Pace = no_pause) -> ScriptedHost:
        """Start the host, linked when this returns."""
        assert self.hub is not None
        host = scripted_host(self.folder / "host", self.hub.address, reply, pace)
        self.running = await self.stack.enter_async_context(host)
        return self.running

    async def requests_at_host(self, conversation: ConversationId, count: int) -> None:
        """Wait until the host, and the hub before it, has so many requests of a conversation."""
        assert self.running is not None
        replica = self.running.replica
        held = replica.shelf[conversation]
        assert await replica.wait_for(lambda: len(held.order.requests) >= count, 30.0)

    def open(self, name: str = "me", **options: Any) -> AbstractAsyncContextManager[Any]:
        """Open a replica on the hub."""
        if self.hub is not None:
            options.setdefault("hub", self.hub.address)
        return opened(self.form, self.folder / name, **options)

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[tuple[Any, Any, Any]]:
        """Open what two members share: the other one, and the conversation as each has it."""
        async with self.open() as me, self.open("bob") as bob:
            mine = await me.conversation("trip")
            await mine.grant(bob.key)
            assert await mine.sync()
            yield bob, mine, await bob.get(mine.id)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what needs a lab in both forms, or in those that its module names as FORMS.

    The blocking form runs the async one (portal.py), so what it does holds for both. Where the
    form itself matters, as in what is interrupted, cut off or closed, a module has both.
    """
    if "lab_form" in metafunc.fixturenames:
        forms = getattr(metafunc.module, "FORMS", ["async", "blocking"])
        metafunc.parametrize("lab_form", forms)


@pytest.fixture
async def lab(tmp_path: Path, lab_form: str) -> AsyncIterator[Lab]:
    """A hub without a host, for each form."""
    lab = Lab(tmp_path, lab_form)
    async with lab.stack:
        await lab.start_hub()
        yield lab


@pytest.fixture
async def talking(lab: Lab) -> Lab:
    """A hub with a host that echoes."""
    await lab.start_host()
    return lab
