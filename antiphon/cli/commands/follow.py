"""`antiphon log -f`: entries as they arrive, without locking the store.

There are two sources: the store, which another process may be writing, and the
hub, watched from the local heads. Either is sufficient. An entry from both is
shown once.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable

from antiphon.cli.common import Session
from antiphon.cli.views import brief
from replica.conversation import Conversation, EntryStore
from replica.errors import AntiphonError, EntryRefused
from replica.io import HubCalls
from replica.link import cursor_of
from replica.log import Admitted, Entry, send_order
from replica.refusals import LinkIdle

POLL_S = 0.3
"""Interval between reads of the store."""
RETRY_S = 2.0
"""Pause before a hub that can't be watched is tried again."""


async def follow(session: Session, store: EntryStore, held: Conversation) -> AsyncIterator[Entry]:
    """Yield every entry that `held` gains, admitting it, until cancelled.

    Raises what ends a source, such as StoreCorrupt.
    """
    arrived: asyncio.Queue[Entry] = asyncio.Queue()
    sources = (
        asyncio.create_task(_from_store(store, held, arrived)),
        asyncio.create_task(_from_hub(session, store, held, arrived)),
    )
    try:
        while True:
            # What came together is told by all of it: an undone question, for example.
            came = [await _next(arrived, sources)]
            while not arrived.empty():
                came.append(arrived.get_nowait())
            for entry in [new for one in came for new in _admit(held, one)]:
                yield entry
    finally:
        for source in sources:
            source.cancel()
        await asyncio.gather(*sources, return_exceptions=True)


async def _next(
    arrived: "asyncio.Queue[Entry]", sources: "tuple[asyncio.Task[None], ...]"
) -> Entry:
    """Return the next entry. Raises what has ended a source meanwhile."""
    getting = asyncio.create_task(arrived.get())
    try:
        await asyncio.wait((getting, *sources), return_when=asyncio.FIRST_COMPLETED)
        for source in sources:
            if source.done() and not getting.done():
                source.result()
        return await getting
    finally:
        getting.cancel()


def _admit(held: Conversation, entry: Entry) -> tuple[Entry, ...]:
    try:
        verdict = held.admit(entry)
    except EntryRefused:
        return ()  # the process that holds the store reports it
    return verdict.entries if isinstance(verdict, Admitted) else ()


async def _from_store(
    store: EntryStore, held: Conversation, arrived: "asyncio.Queue[Entry]"
) -> None:
    seen_bytes = -1
    while True:
        stored = {s.conversation: s.size_bytes for s in await store.conversations()}
        size_bytes = stored.get(held.id, seen_bytes)
        if size_bytes != seen_bytes:
            seen_bytes = size_bytes
            loaded = sorted((await store.load(held.id)).entries, key=send_order)
            _put_all(arrived, (entry for entry in loaded if entry.id not in held.log.entries))
        await asyncio.sleep(POLL_S)


async def _from_hub(
    session: Session, store: EntryStore, held: Conversation, arrived: "asyncio.Queue[Entry]"
) -> None:
    """Watch the hub; report once that it is away, and try again."""
    calls = HubCalls(session.settings.hub, session.key(), store)
    last_reason = ""
    try:
        while True:
            try:
                async for entries in calls.watch(held.id, cursor_of(held.log)):
                    last_reason = ""
                    _put_all(arrived, entries)
            except LinkIdle:
                continue  # no entries for a while; watch again from here
            except AntiphonError as error:
                if error.reason != last_reason:
                    last_reason = error.reason
                    session.out.note(f"showing local entries only; the hub: {brief(error)}")
            await asyncio.sleep(RETRY_S)
    finally:
        await calls.close()


def _put_all(arrived: "asyncio.Queue[Entry]", entries: Iterable[Entry]) -> None:
    for entry in entries:
        arrived.put_nowait(entry)
