"""The copy of a hub, as a replica that begins anew gets it (DECISIONS D557)."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from antiphon.cli.commands.clone import fetch
from antiphon.cli.commands.findings import Findings, check
from antiphon.cli.common import HubDiffers, NotCompared, Session, unsynced_words
from antiphon.cli.views import counted
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, short
from replica.io import Replica, SecondLook, held_at_hub, look_again, pinned_key, require_link

_PREFIX = "second-look-"


async def look(session: Session, prefix: str | None) -> tuple[Findings, HubDiffers | None]:
    """Fetch a conversation anew, and compare it; return the findings, and what differs.

    Raises NotCompared where one of the two sides has no whole copy of it, and the reason why
    the hub is not linked.
    """
    session.require_store()
    async with session.replica() as replica:
        conversation = await session.choose(replica.store, prefix)
        await require_link(replica, session.settings.sync_timeout_s)
        if not (await replica.load(conversation)).is_member(replica.public):
            raise NotCompared("your key is no member of it, so the hub sends it nothing")
        if not await session.sync(replica, conversation):
            raise NotCompared(unsynced_words(replica, conversation))
        with _new_folder(session.folder) as folder:
            return await _compare(session, replica, conversation, folder)


@contextmanager
def _new_folder(parent: Path) -> Iterator[Path]:
    """Make a folder beside the log for the block, and remove those that killed processes left."""
    for left in parent.glob(f"{_PREFIX}*"):
        number = left.name.removeprefix(_PREFIX).partition("-")[0]
        if not (number.isdecimal() and _is_alive(int(number))):
            shutil.rmtree(left, ignore_errors=True)  # the next one tries again
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent) as folder:
        yield Path(folder)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def _compare(
    session: Session, replica: Replica, conversation: ConversationId, folder: Path
) -> tuple[Findings, HubDiffers | None]:
    address, timeout_s = session.settings.hub, session.settings.sync_timeout_s
    pinned = await pinned_key(replica.store, address)
    opening = Replica.open(folder / "log.db", session.key(), address, hub_key=pinned)
    async with opening as fresh:
        await require_link(fresh, timeout_s)
        fetched = await fetch(session, fresh, conversation)
        if fetched.held is None or not fetched.is_complete:
            if fetched.refusal is not None:
                raise fetched.refusal
            error = None if fresh.hub.is_linked else fresh.hub.last_error
            raise error or NotCompared("the hub did not send all of it in time")
        await fresh.follow(conversation)
        found = await look_again(replica, fresh, conversation, timeout_s)
        if found is None:
            raise NotCompared("the link to the hub was lost meanwhile")
        findings = check(conversation, tuple(fetched.held.log.entries.values()))
    return findings, _difference(found, findings)


def _difference(found: SecondLook, findings: Findings) -> HubDiffers | None:
    for ids, words in (
        (found.not_served, "was acked by the hub, which does not send it whole to a new replica"),
        (found.kept_back, "is sent by the hub to a new replica, and was kept back from this one"),
    ):
        findings.bad += [f"entry {short(entry)} {words}" for entry in sorted(ids)]
    count = len(found.not_served) + len(found.kept_back)
    return HubDiffers(f"{counted(count, 'entry', 'entries')} differ") if count else None


async def held_of(
    session: Session, replica: Replica, conversation: ConversationId, new: Set[EntryId]
) -> frozenset[EntryId]:
    """Return which entries of a bundle, new here, the hub holds and has not sent.

    Empty where the hub is away or refuses the conversation: then it has stated nothing of it.
    Those that are not covered once they are imported were not kept back.
    """
    try:
        if not await session.sync(replica, conversation):
            return frozenset()
        new = new - (await replica.load(conversation)).log.entries.keys()
        timeout_s = session.settings.sync_timeout_s
        found = await held_at_hub(replica, conversation, new, timeout_s)
    except AntiphonError:
        return frozenset()  # the import meets the refusal again, and reports it
    return found if replica.hub.is_in_sync(conversation) else frozenset()
