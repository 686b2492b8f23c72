"""Entries that do not come over the link: conversations from files, bodies from the hub.

Every entry is verified before it is stored, as on the link.
"""

from collections.abc import Iterable
from contextlib import aclosing

from replica.conversation import Conversation
from replica.errors import EntryRefused
from replica.ids import ConversationId
from replica.io.driver.replica import Replica
from replica.log import Admitted, Duplicate, Entry
from replica.refusals import ConversationUnknown


async def import_entries(replica: Replica, entries: tuple[Entry, ...]) -> ConversationId:
    """Store a conversation from a bundle, every entry verified; return its id.

    Raises the EntryRefused of the first bad entry; nothing is stored then.
    """
    conversation = entries[0].conversation
    loaded = await replica.store.load(conversation)
    trial = Conversation.restore(conversation, loaded.entries, loaded.lost)
    pending = set(trial.log.pending)
    new = _admit_all(trial, entries)
    if missing := tuple(i for i in trial.log.pending if i not in pending):
        raise ConversationUnknown("the bundle lacks entries its own follow", missing=missing)
    await replica.keep(trial, new)
    return conversation


async def fetch_missing(replica: Replica, conversation: ConversationId) -> int:
    """Fetch missing bodies, those in quarantine too; return their number.

    They are requested by id, since digests cover headers only and lane heads
    don't show missing bodies. A missing entry needs no request: its lane ends
    before it. Raises HubUnreachable, the hub's refusal, or BodyDigestMismatch once all other
    bodies are stored.
    """
    held = await replica.load(conversation)
    wanted = [entry.id for entry in held.log.entries.values() if entry.body is None]
    if not wanted:
        return 0
    filled = 0
    wrong: list[EntryRefused] = []
    async with aclosing(replica.calls().fetched(conversation, wanted)) as fetched:
        async for entries in fetched:
            new: list[Entry] = []
            for entry in entries:
                try:
                    new += _admit_all(held, (entry,))
                except EntryRefused as error:
                    wrong.append(error)
            # They are in memory, whatever came beside them, and whether more come.
            await replica.keep(held, tuple(new))
            filled += len(new)
    if wrong:
        raise wrong[0]
    return filled


def _admit_all(held: Conversation, entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Admit entries; return the new ones, and those whose missing body was filled."""
    new: list[Entry] = []
    for entry in entries:
        match held.admit(entry):
            case Admitted() as verdict:
                new += verdict.unstored
            case Duplicate(filled) if filled is not None:
                new.append(filled)
            case _:
                pass
    return tuple(new)
