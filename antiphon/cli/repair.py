"""`antiphon repair`: mend a damaged data folder, and say what is lost.

The key file, then the store, then the entries that a hub still has. It works on the
folder of a replica, of a hub and of a model host, while their process is stopped.
Damaged files are set aside, never deleted.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import typer

from antiphon.cli.clone import fetch
from antiphon.cli.command import command
from antiphon.cli.output import brief
from antiphon.cli.rows import counted
from antiphon.cli.services_lock import DAEMONS, LOCK_FILE, services_lock
from antiphon.cli.session import Session, bodies_missing, load_from
from replica.conversation import Conversation, EntryStore
from replica.errors import AntiphonError
from replica.ids import ConversationId, short
from replica.io import (
    FolderUse,
    Replica,
    StoreRepair,
    keys,
    listed,
    repair_store,
    require_free,
    use_of,
)
from replica.log import public_key
from replica.refusals import HubUnreachable

SECRETS = ("ticket.secret", "salt.secret", "checkpoint.secret", "archive.secret")
HUB_STEP = (
    "this is a hub's folder: start it again; members send the entries it lacks when they link"
)
REPLICA_STEP = (
    " next: antiphon repair while a hub or replica that holds them is linked, or antiphon import a"
    " bundle of it"
)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "repair", rich_help_panel="Keep")
    async def repair(session: Session) -> int:
        """Mend the key file and the store of a data folder; fetch the rest from the hub.

        Give --data-dir for the folder of a hub or a model host. What was damaged is set
        aside beside the new files. Exit 1 if a deletion is lost, or if entries are still missing:
        those of a hub come from its members, once it runs again. Refused while a process has
        the folder open, with the id of that process.
        """
        _require_stopped(session)
        path = session.settings.key_path
        key_words = keys.repair(path)
        if key_words:
            session.out.note(f"{path} {key_words}; its key is {public_key(session.key()).hex()}")
        for name in SECRETS:
            file = path.with_name(name)
            if keys.repair_secret(file):
                session.out.note(f"{file} was no secret; the next start makes another")
        done = await repair_store(session.settings.store_path)
        is_hub = await use_of(session.folder) is FolderUse.HUB
        _say_store(session, done, is_hub=is_hub)
        if is_hub:
            missing = await _left_to_members(session, done)
        else:
            missing = await _fetch_rest(session, done)
        _report(session, key_words, done, missing)
        return 1 if missing or done.deletions_lost else 0


def _require_stopped(session: Session) -> None:
    """Raise AlreadyRunning or StoreLocked, with a pid, if a process has the folder open."""
    folder = session.folder
    if folder.name in DAEMONS and (folder.parent / LOCK_FILE).exists():
        with services_lock(folder.parent):
            pass  # else `antiphon up` would start a daemon again that was ended for the repair
    require_free(session.settings.store_path)


def _say_store(session: Session, done: StoreRepair, *, is_hub: bool) -> None:
    if not done.why:
        session.out.note("the store reads; nothing was set aside")
        return
    session.out.note(f"the store was damaged: {done.why}")
    if done.aside is not None:
        session.out.note(f"set aside: {done.aside}")
    session.out.note(f"{counted(done.kept, 'entry', 'entries')} read and verified")
    if done.deletions_kept:
        session.out.note(f"{counted(done.deletions_kept, 'deletion', 'deletions')} kept")
    if done.lost:
        # The count of a hub's store is of both.
        words = ("entry or deletion", "entries or deletions") if is_hub else ("entry", "entries")
        session.out.note(f"{counted(done.lost, *words)} stored here could not be read")
    if done.deletions_lost:
        lost = counted(done.deletions_lost, "deletion", "deletions")
        session.out.note(f"{lost} lost: members may bring the conversation back; delete it again")


async def _left_to_members(session: Session, done: StoreRepair) -> int:
    """Say that a hub's members send the rest; return the number of entries missing now."""
    missing = done.lost
    if session.has_store():
        async with session.reading() as store:
            lacking = await _missing(session, store, lambda c: load_from(store, c))
        missing = max(missing, lacking)
    session.out.note(HUB_STEP)
    return missing


async def _fetch_rest(session: Session, done: StoreRepair) -> int:
    """Fetch what the hub has; return the number of entries that are known to be missing."""
    async with session.replica() as replica:
        await replica.wait_for(lambda: replica.hub.is_tried, session.settings.sync_timeout_s)
        held = tuple(stored.conversation for stored in await replica.store.conversations())
        if replica.hub.is_linked:
            await _fetch(session, replica, held, is_new=done.aside is not None)
        else:
            why = brief(replica.hub.last_error or HubUnreachable())
            session.out.note(f"the hub could not be asked for the rest: {why}")
            session.out.note("next: antiphon repair, once it is back")
        missing = await _missing(session, replica.store, replica.load, REPLICA_STEP)
        return missing if replica.hub.is_linked else max(missing, done.lost)


async def _fetch(
    session: Session, replica: Replica, held: tuple[ConversationId, ...], *, is_new: bool
) -> None:
    wanted = held
    if is_new:
        # Of a conversation whose every page was damaged nothing is left here to name it.
        wanted += tuple(c for c in await listed(replica.calls()) if c not in held)
    for conversation in wanted:
        fetched = await fetch(session, replica, conversation)
        if fetched.new:
            new = counted(fetched.new, "entry", "entries")
            session.out.note(f"{short(conversation)}: {new} fetched from the hub")
        if fetched.refusal is not None:
            session.out.note(f"{short(conversation)}: {brief(fetched.refusal)}")


async def _missing(
    session: Session,
    store: EntryStore,
    load: Callable[[ConversationId], Awaitable[Conversation]],
    next_step: str = "",
) -> int:
    """Return the number of entries that the conversations lack, and say so of each."""
    count = 0
    for stored in await store.conversations():
        try:
            held = await load(stored.conversation)
        except AntiphonError as error:
            session.out.note(f"{short(stored.conversation)}: {brief(error)}")
            count += 1
            continue
        lacking = len(held.damage.missing) + bodies_missing(held)
        count += lacking
        if lacking:
            lost = counted(lacking, "entry is", "entries are")
            session.out.note(f"{short(held.id)}: {lost} still missing.{next_step}")
    return count


def _report(session: Session, key_words: str, done: StoreRepair, missing: int) -> None:
    record: dict[str, Any] = {
        "key": key_words or None,
        "store": done.why or None,
        "set_aside": str(done.aside) if done.aside is not None else None,
        "kept": done.kept,
        "unread": done.lost,
        "deletions_kept": done.deletions_kept,
        "deletions_lost": done.deletions_lost,
        "missing": missing,
    }
    if session.out.as_json:
        session.out.emit(record)
    else:
        session.out.show("repaired" if done.why or key_words else "nothing to repair")
