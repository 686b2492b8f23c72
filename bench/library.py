"""The library: what it adds to a turn, its import, and many conversations.

    python -m bench.library [--json]

The host is scripted, so that a turn costs what client, hub and links cost. The bare client
pushes two signed entries and watches the hub; it has no store. Both take turns, round by
round, and the median of the differences counts.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from antiphon import aio
from antiphon.daemons import Supervisor
from bench.result import Goal, arguments, report, say
from replica.conversation import Author, Conversation, newest_place
from replica.ids import SALT_BYTES, EntryId
from replica.io import HubCalls, Store, keys
from replica.link import cursor_of
from replica.log import Message, Request, Sampling, Speaker, Text

ROUNDS, TURNS = 9, 10
CONVERSATIONS = 200
IMPORTS = 7
HOST = "tests.support.scripted_host"


class Bare:
    """A client with a key and a log in memory, on one Watch."""

    def __init__(self, calls: HubCalls, author: Author, held: Conversation) -> None:
        self.calls, self.author, self.held = calls, author, held
        self.news = asyncio.Event()
        self.watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        async for entries in self.calls.watch(self.held.id, cursor_of(self.held.log)):
            for entry in entries:
                self.held.admit(entry)
            self.news.set()

    async def ask(self, words: str) -> None:
        """Push a message and a request, and wait for the generation."""
        place, held = newest_place(self.held), self.held
        host = next(k for k, roles in held.log.membership.roles.items() if 4 in roles)
        written, parents = [], place.parents
        for body in (Message(Speaker.USER, (Text(words),)), Request(host, Sampling(seed=1))):
            entry = self.author.write(
                held, body, parents=parents, basis=place.basis,
                salt=bytes(SALT_BYTES), time_ms=0,
            )  # fmt: skip
            held.admit(entry)
            written.append(entry)
            parents = (entry.id,)
        await self.calls.push(held.id, tuple(written))
        while held.order.generation_of(EntryId(written[-1].id)) is None:
            self.news.clear()
            await self.news.wait()


async def median_ms(ask: Callable[[str], Awaitable[object]]) -> float:
    """Return the median time of some turns in milliseconds."""
    times = []
    for number in range(TURNS):
        began = time.perf_counter()
        await ask(f"Turn {number}?")
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


@asynccontextmanager
async def bare_client(folder: Path, hub: str) -> AsyncIterator[Bare]:
    """Begin a conversation, and give it to the bare client of the same key."""
    async with aio.open(folder, hub=hub) as me:
        talk = await me.conversation("bare")
        await talk.ask("Warm?")
        await me.sync()
    key = keys.load_or_create(folder / "identity.key")
    async with await Store.open(folder / "pins.db") as store:
        calls = HubCalls(hub, key, store)
        bare = Bare(calls, Author(key, 7), Conversation(talk.id))
        while not bare.held.order.nodes:
            bare.news.clear()
            await bare.news.wait()
        yield bare
        bare.watching.cancel()
        with suppress(asyncio.CancelledError):
            await bare.watching
        await calls.close()


async def measure_ask(folder: Path, hub: str) -> dict[str, list[float]]:
    """Return the times of a turn through the library and the bare client, in alternation."""
    found: dict[str, list[float]] = {"library_ms": [], "bare_ms": []}
    async with aio.open(folder / "me", hub=hub) as me, bare_client(folder / "bare", hub) as bare:
        talk = await me.conversation("bench")
        for number in range(ROUNDS + 1):  # the first warms up
            for name, ask in (("library_ms", talk.ask), ("bare_ms", bare.ask)):
                taken = await median_ms(ask)
                if number:
                    found[name].append(taken)
    return found


async def measure_open(folder: Path, hub: str) -> float:
    """Return the seconds to open and sync many conversations."""
    async with aio.open(folder / "many", hub=hub) as me:
        for number in range(CONVERSATIONS):
            await (await me.conversation(f"talk {number}")).say("Hello.")
        assert await me.sync(120)
    began = time.perf_counter()
    async with aio.open(folder / "many", hub=hub) as me:
        assert await me.sync(120)
        return time.perf_counter() - began


def measure_import() -> float:
    """Return the seconds of `import antiphon`, the least of some processes."""
    code = "import time; t = time.perf_counter(); import antiphon; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", code]
    runs = (subprocess.run(command, check=True, capture_output=True) for _ in range(IMPORTS))
    return min(float(run.stdout) for run in runs)


async def measure(folder: Path) -> tuple[dict[str, list[float]], float]:
    """Run a hub and a scripted host, and measure turns and conversations."""
    async with Supervisor(folder, host_module=HOST, report=say) as daemons:
        hub = daemons.hub.ready.address
        say("turns")
        turns = await measure_ask(folder, hub)
        say("conversations")
        return turns, await measure_open(folder, hub)


def main() -> int:
    """Measure and report."""
    given = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory() as folder:
        turns, open_s = asyncio.run(measure(Path(folder)))
    import_s = measure_import()
    pairs = zip(turns["library_ms"], turns["bare_ms"], strict=True)
    more_ms = statistics.median(library - bare for library, bare in pairs)
    goals = [
        Goal("ask, milliseconds over the bare client", more_ms, 5.0, at_least=False),
        Goal("import, seconds", import_s, 0.25, at_least=False),
        Goal("200 conversations opened and synced, seconds", open_s, 2.0, at_least=False),
    ]  # fmt: skip
    raw: dict[str, object] = {**turns, "import_s": import_s, "open_s": open_s}
    return report("library", goals, raw, json_only=given.json)


if __name__ == "__main__":
    sys.exit(main())
