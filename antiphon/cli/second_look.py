"""The copy of a hub, as a replica that begins anew gets it (DECISIONS D557)."""

import tempfile
from pathlib import Path

from antiphon.cli.clone import fetch
from antiphon.cli.errors import HubDiffers, NotCompared
from antiphon.cli.findings import Findings, check
from antiphon.cli.rows import counted
from antiphon.cli.session import Session, unsynced_words
from replica.errors import AntiphonError
from replica.ids import ConversationId, short
from replica.io import Replica, SecondLook, kept_back, look_again, pinned_key, require_link
from replica.log import Bundle


async def look(session: Session, prefix: str | None) -> tuple[Findings, HubDiffers | None]:
    """Fetch a conversation anew, and compare it; return the findings, and what differs.

    Raises NotCompared where there is no whole copy of it on either side, and the reason why
    the hub is not linked.
    """
    async with session.replica() as replica:
        conversation = await session.choose(replica.store, prefix)
        await require_link(replica, session.settings.sync_timeout_s)
        if not await session.sync(replica, conversation):
            raise NotCompared(unsynced_words(replica, conversation))
        with tempfile.TemporaryDirectory() as folder:
            return await _compare(session, replica, conversation, Path(folder))


async def _compare(
    session: Session, replica: Replica, conversation: ConversationId, folder: Path
) -> tuple[Findings, HubDiffers | None]:
    address = session.settings.hub
    pinned = await pinned_key(replica.store, address)
    opening = Replica.open(folder / "log.db", session.key(), address, hub_key=pinned)
    async with opening as fresh:
        await require_link(fresh, session.settings.sync_timeout_s)
        fetched = await fetch(session, fresh, conversation)
        if fetched.held is None or not fetched.is_complete:
            if fetched.refusal is not None:
                raise fetched.refusal
            raise NotCompared("the hub did not send all of it in time")
        await fresh.follow(conversation)
        found = await look_again(replica, fresh, conversation, session.settings.sync_timeout_s)
        findings = check(conversation, tuple(fetched.held.log.entries.values()))
    return findings, _difference(found, findings)


def _difference(found: SecondLook, findings: Findings) -> HubDiffers | None:
    for ids, words in (
        (found.not_served, "was acked by the hub, which does not send it to a new replica"),
        (found.kept_back, "is sent by the hub to a new replica, and was kept back from this one"),
    ):
        findings.bad += [f"entry {short(entry)} {words}" for entry in sorted(ids)]
    count = len(found.not_served) + len(found.kept_back)
    return HubDiffers(f"{counted(count, 'entry', 'entries')} differ") if count else None


async def kept_from(session: Session, replica: Replica, bundle: Bundle) -> int:
    """Return how many entries of a bundle the hub holds and has kept back from this replica.

    0 where nothing of it is here, or the hub is away or refuses it: then the hub has stated
    nothing of it.
    """
    conversation = bundle.entries[0].conversation
    loaded = await replica.store.load(conversation)
    known = {entry.id for entry in loaded.entries}
    new = {entry.id for entry in bundle.entries} - known
    if not known or not new:
        return 0
    try:
        if not await session.sync(replica, conversation):
            return 0
        new -= (await replica.load(conversation)).log.entries.keys()
        return len(await kept_back(replica, conversation, new, session.settings.sync_timeout_s))
    except AntiphonError:
        return 0  # the import meets the refusal again, and reports it
