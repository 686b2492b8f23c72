"""`antiphon log -f`: entries as they arrive, without locking the store.

There are two sources: the store, which another process may be writing, and the
hub, watched from the local heads. Either is sufficient. An entry from both is
shown once. The deletion of the conversation from the store ends it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import chain

from antiphon.cli.common import DeletedHere, Session
from antiphon.cli.views import brief
from replica.conversation import Conversation, EntryStore, MemoryShelf
from replica.errors import AntiphonError, EntryRefused
from replica.io import HubCalls
from replica.link import EffectsBuilder, Entries, EntriesAdmitted, Intake, cursor_of
from replica.log import Admitted, Entry, send_order
from replica.refusals import LinkIdle

POLL_S = 0.3
"""Interval between reads of the store."""
RETRY_S = 2.0
"""Pause before the hub is watched again, whatever ended the last Watch."""
ARRIVED_MAX = 16
"""Pieces that wait to be shown: a hub is read no faster than that."""

_Arrived = asyncio.Queue[Sequence[Entry]]


async def follow(session: Session, store: EntryStore, held: Conversation) -> AsyncIterator[Entry]:
    """Yield every entry that `held` gains, which the sources admit, until cancelled.

    Raises what ends a source, such as StoreCorrupt, and DeletedHere.
    """
    arrived = _Arrived(ARRIVED_MAX)
    sources = (
        asyncio.create_task(_from_store(store, held, arrived)),
        asyncio.create_task(_from_hub(session, store, held, arrived)),
    )
    try:
        while True:
            # What came together is told by all of it: an undone question, for example.
            came = [*await _next(arrived, sources)]
            while not arrived.empty():
                came += arrived.get_nowait()
            for entry in came:
                yield entry
    finally:
        for source in sources:
            source.cancel()
        await asyncio.gather(*sources, return_exceptions=True)


async def _next(arrived: _Arrived, sources: "tuple[asyncio.Task[None], ...]") -> Sequence[Entry]:
    """Return the next entries. Raises what has ended a source meanwhile."""
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


async def _from_store(store: EntryStore, held: Conversation, arrived: _Arrived) -> None:
    seen_bytes = -1
    while True:
        stored = {s.conversation: s.size_bytes for s in await store.conversations()}
        if held.id not in stored and seen_bytes >= 0:
            raise DeletedHere
        size_bytes = stored.get(held.id, seen_bytes)
        if size_bytes != seen_bytes:
            seen_bytes = size_bytes
            loaded = sorted((await store.load(held.id)).entries, key=send_order)
            new = [entry for entry in loaded if entry.id not in held.log.entries]
            await arrived.put([one for entry in new for one in _admit(held, entry)])
        await asyncio.sleep(POLL_S)


async def _from_hub(
    session: Session, store: EntryStore, held: Conversation, arrived: _Arrived
) -> None:
    """Watch the hub; report once that it is away, and try again.

    Its entries are admitted as on a link: those that lack others are held back up to a bound.
    """
    intake = _intake(held)
    calls = HubCalls(session.settings.hub, session.key(), store)
    last_reason = ""
    try:
        while True:
            try:
                async for entries in calls.watch(held.id, cursor_of(held.log)):
                    last_reason = ""
                    await arrived.put(_admit_from_hub(intake, held, entries))
            except LinkIdle:
                pass  # no beats for a while; watch again from here
            except AntiphonError as error:
                if error.reason != last_reason:
                    last_reason = error.reason
                    session.out.note(f"showing local entries only; the hub: {brief(error)}")
            await asyncio.sleep(RETRY_S)
    finally:
        await calls.close()


def _admit_from_hub(
    intake: Intake, held: Conversation, entries: tuple[Entry, ...]
) -> Sequence[Entry]:
    """Admit entries of the hub; return the new ones, not those whose missing body came."""
    shown = {entry.id for entry in entries if entry.id in held.log.entries}
    out = EffectsBuilder()
    intake.receive(Entries(held.id, entries), None, out)
    admitted = (event.entries for event in out.deliver if isinstance(event, EntriesAdmitted))
    return [entry for entry in chain.from_iterable(admitted) if entry.id not in shown]


def _intake(held: Conversation) -> Intake:
    shelf = MemoryShelf()
    shelf.add(held)
    return Intake(
        shelf,
        is_hub=False,
        send=lambda _message, _out: None,  # a Watch takes no answers
        may_create=lambda _key: False,
        entries_max=None,
    )
