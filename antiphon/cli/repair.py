"""`antiphon repair`: mend a damaged data folder, and say what is lost.

The key file, then the store, then the entries that a hub still has. It works on the
folder of a replica, of a hub and of a model host, while their process is stopped.
Damaged files are set aside, never deleted.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import typer

from antiphon.cli.clone import fetch
from antiphon.cli.command import command
from antiphon.cli.errors import NothingHere
from antiphon.cli.losses import bodies_missing, losses_of, next_step
from antiphon.cli.output import brief, step_of
from antiphon.cli.rows import counted
from antiphon.cli.services_lock import DAEMONS, LOCK_FILE, services_lock
from antiphon.cli.session import Session, load_from
from replica.conversation import Conversation, EntryStore
from replica.errors import AntiphonError
from replica.ids import ConversationId, short
from replica.io import (
    FolderUse,
    Replica,
    StoreRepair,
    is_unfetched,
    keys,
    listed,
    means_away,
    note_fetched,
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
        if not session.folder.is_dir():
            raise NothingHere(f"{session.folder} does not exist")
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
        is_mended = bool(done.why or key_words)
        if is_hub:
            missing = await _left_to_members(session, done)
        else:
            missing, was_left = await _fetch_rest(session, done)
            is_mended = is_mended or was_left
        _report(session, key_words, done, missing, is_mended=is_mended)
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
            lacking = await _missing(session, store, lambda c: load_from(store, c), is_hub=True)
        missing = max(missing, lacking)
    session.out.note(HUB_STEP)
    return missing


async def _fetch_rest(session: Session, done: StoreRepair) -> tuple[int, bool]:
    """Fetch what the hub has.

    Return the number of entries that are known to be missing, and whether a repair had left
    whole conversations to fetch.
    """
    async with session.replica() as replica:
        await replica.wait_for(lambda: replica.hub.is_tried, session.settings.sync_timeout_s)
        is_left, refused = await is_unfetched(replica.store), set[ConversationId]()
        if replica.hub.is_linked:
            if await _fetch(session, replica, refused, with_listed=is_left) and is_left:
                await note_fetched(replica.store)
        else:
            error = replica.hub.last_error or HubUnreachable()
            session.out.note(f"the hub could not be asked for the rest: {brief(error)}")
            is_away = means_away(error)
            step = "antiphon repair, once it is back" if is_away else step_of(error)
            session.out.note(f"next: {step}")
        missing = await _missing(session, replica.store, replica.load, refused)
        least = 0 if replica.hub.is_linked else max(done.lost, int(is_left))
        return max(missing, least), is_left


async def _fetch(
    session: Session, replica: Replica, refused: set[ConversationId], *, with_listed: bool
) -> bool:
    """Fetch what the hub has of the conversations here, or of all that it lists.

    Return whether none of its refusals passes with time; the others are added to `refused`.
    """
    held = [stored.conversation for stored in await replica.store.conversations()]
    found = await listed(replica.calls()) if with_listed else ()
    is_whole = True
    for conversation in (*held, *(c for c in found if c not in held)):
        fetched = await fetch(session, replica, conversation)
        if fetched.new:
            new = counted(fetched.new, "entry", "entries")
            session.out.note(f"{short(conversation)}: {new} fetched from the hub")
        if fetched.refusal is not None:
            is_whole = is_whole and not fetched.refusal.retryable
            if not fetched.refusal.retryable:
                refused.add(conversation)
            session.out.note(f"{short(conversation)}: {brief(fetched.refusal)}")
    return is_whole


async def _missing(
    session: Session,
    store: EntryStore,
    load: Callable[[ConversationId], Awaitable[Conversation]],
    refused: Collection[ConversationId] = (),
    *,
    is_hub: bool = False,
) -> int:
    """Return the number of entries that the conversations lack, and say so of each."""
    count, rows = 0, await store.quarantined()
    for stored in await store.conversations():
        try:
            held = await load(stored.conversation)
        except AntiphonError as error:
            session.out.note(f"{short(stored.conversation)}: {brief(error)}")
            count += 1
            continue
        losses = losses_of(held, rows)
        count += losses.count
        if kept := len(bodies_missing(held)) - len(losses.bodies & held.log.entries.keys()):
            came = counted(kept, "entry", "entries")
            session.out.note(f"{short(held.id)}: {came} came without the body")
        if losses.count:
            words = counted(losses.count, "entry is", "entries are")
            step = f" {next_step(held, is_refused=held.id in refused)}" if not is_hub else ""
            session.out.note(f"{short(held.id)}: {words} still missing{losses.more}.{step}")
    return count


def _report(
    session: Session, key_words: str, done: StoreRepair, missing: int, *, is_mended: bool
) -> None:
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
        done_words = ["repaired"] if is_mended else []
        if missing:
            done_words.append(counted(missing, "entry is", "entries are") + " still missing")
        session.out.show("; ".join(done_words) or "nothing to repair")
