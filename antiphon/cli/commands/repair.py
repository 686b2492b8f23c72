"""`antiphon repair`: mend a damaged data folder, and say what is lost.

The key file, then the store, then the entries that a hub still has. It works on the
folder of a replica, of a hub and of a model host, while their process is stopped.
Damaged files are set aside, never deleted.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import typer

from antiphon.cli.commands.clone import fetch
from antiphon.cli.common import NothingHere, Session, command, load_from, next_command
from antiphon.cli.views import (
    LOST_WORDS,
    bodies_missing,
    brief,
    counted,
    import_step,
    losses_of,
    next_step,
    step_of,
)
from antiphon.daemons import DAEMONS, LOCK_FILE, services_lock
from replica.conversation import Conversation, EntryStore
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, short
from replica.io import (
    FolderUse,
    Replica,
    StoreRepair,
    Unfetched,
    keys,
    listed,
    means_away,
    note_fetched,
    repair_store,
    require_free,
    times_of,
    unfetched_of,
    use_of,
)
from replica.log import public_key
from replica.refusals import HubUnreachable

SECRETS = ("ticket.secret", "salt.secret", "checkpoint.secret", "archive.secret")
HUB_STEP = (
    "this is a hub's folder: start it again; members send the entries it lacks when they link"
)
GONE_WORDS = "The hub has none of them for this key, and no later repair says so again. next:"


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is to be brought back to a mended store."""

    missing: int
    """Number of the entries that are known to be missing."""
    was_left: bool = False
    """Whether a repair had left whole conversations to fetch."""
    is_open: bool = False
    """Whether a hub is to be asked for these yet."""


@dataclass(slots=True)
class _Asked:
    """What became of asking the hub for the rest."""

    is_whole: bool = False
    """Whether it was asked for all, and none of its refusals passes with time."""
    refused: set[ConversationId] = field(default_factory=set)
    """Conversations of which it gives this key nothing."""


@dataclass(slots=True)
class _Left:
    """What the conversations here hold after a repair, and what they lack."""

    times: dict[EntryId, int] = field(default_factory=dict)
    """When the entries here were created, in Unix milliseconds."""
    named: set[EntryId] = field(default_factory=set)
    """Entries of which nothing is here but their ids."""
    unreadable: int = 0
    """Conversations that cannot be read."""
    bodies: int = 0
    """Entries whose body alone is lost."""

    @property
    def missing(self) -> int:
        """Entries of which nothing is here, at least one of each conversation not to be read."""
        return len(self.named) + self.unreadable


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "repair", rich_help_panel="Keep")
    async def repair(session: Session) -> int:
        """Mend the key file and the store of a data folder; fetch the rest from the hub.

        Give --data-dir for the folder of a hub or a model host. Damaged files are set aside
        beside the new ones. Exit 1 if a deletion is lost, or if entries are still missing: a hub
        gets them from its members once it runs again. If a whole conversation is lost, `repair`
        prints its number of entries until a hub has been asked. Refused while a process has the
        folder open, with the id of that process.
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
        rest = await (_left_to_members(session, done) if is_hub else _fetch_rest(session))
        _report(session, key_words, done, rest)
        return 1 if rest.missing or rest.is_open or done.deletions_lost else 0


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


async def _left_to_members(session: Session, done: StoreRepair) -> _Rest:
    """Say that a hub's members send the rest; return what is missing now."""
    missing = done.lost
    if session.has_store():
        async with session.reading() as store:
            left = await _left(session, store, lambda c: load_from(store, c), is_hub=True)
        missing = max(missing, left.missing) + left.bodies
    session.out.note(HUB_STEP)
    return _Rest(missing)


async def _fetch_rest(session: Session) -> _Rest:
    """Fetch what the hub has; say and return what is missing yet."""
    async with session.replica() as replica:
        await replica.wait_for(lambda: replica.hub.is_tried, session.settings.sync_timeout_s)
        unfetched = await unfetched_of(replica.store)
        asked = _Asked()
        if replica.hub.is_linked:
            asked = await _fetch(session, replica, with_listed=unfetched is not None)
        left = await _left(session, replica.store, replica.load, asked.refused)
        if not replica.hub.is_linked and (unfetched is not None or left.missing or left.bodies):
            _say_unasked(session, replica.hub.last_error or HubUnreachable())
        rest = _say_rest(session, unfetched, left, is_asked=asked.is_whole)
        if unfetched is not None and asked.is_whole:
            # Only now that it was said: what no hub has is not missed for ever (DECISIONS D565).
            await note_fetched(replica.store)
        missing = left.missing + rest + left.bodies
        is_open = unfetched is not None and not replica.hub.is_linked
        return _Rest(missing, was_left=unfetched is not None, is_open=is_open)


def _say_unasked(session: Session, error: AntiphonError) -> None:
    session.out.note(f"the hub could not be asked for the rest: {brief(error)}")
    again = f"{next_command(session.settings, 'repair')}, once it is back"
    session.out.note(f"next: {again if means_away(error) else step_of(error)}")


async def _fetch(session: Session, replica: Replica, *, with_listed: bool) -> _Asked:
    """Fetch what the hub has of the conversations here, or of all that it lists."""
    held = [stored.conversation for stored in await replica.store.conversations()]
    found = await listed(replica.calls()) if with_listed else ()
    asked = _Asked(is_whole=True)
    for conversation in (*held, *(c for c in found if c not in held)):
        fetched = await fetch(session, replica, conversation)
        if fetched.new:
            new = counted(fetched.new, "entry", "entries")
            session.out.note(f"{short(conversation)}: {new} fetched from the hub")
        if fetched.refusal is not None:
            asked.is_whole = asked.is_whole and not fetched.refusal.retryable
            if not fetched.refusal.retryable:
                asked.refused.add(conversation)
            session.out.note(f"{short(conversation)}: {brief(fetched.refusal)}")
    asked.is_whole = asked.is_whole and replica.hub.is_linked
    return asked


async def _left(
    session: Session,
    store: EntryStore,
    load: Callable[[ConversationId], Awaitable[Conversation]],
    refused: Collection[ConversationId] = (),
    *,
    is_hub: bool = False,
) -> _Left:
    """Return what the conversations hold and lack, and say so of each that lacks something."""
    left, rows = _Left(), await store.quarantined()
    for stored in await store.conversations():
        try:
            held = await load(stored.conversation)
        except AntiphonError as error:
            session.out.note(f"{short(stored.conversation)}: {brief(error)}")
            left.unreadable += 1
            continue
        losses = losses_of(held, rows)
        left.times |= times_of((*held.log.entries.values(), *held.log.pending.values()))
        left.named |= losses.missing
        left.bodies += len(losses.bodies)
        if kept := len(bodies_missing(held)) - len(losses.bodies & held.log.entries.keys()):
            came = counted(kept, "entry", "entries")
            session.out.note(f"{short(held.id)}: {came} came without the body")
        if losses.count:
            words = counted(losses.count, "entry is", "entries are")
            importing = next_command(session.settings, "import", "FILE")
            step = next_step(held, importing, is_refused=held.id in refused)
            said = f"{short(held.id)}: {words} still missing{losses.more}."
            session.out.note(said if is_hub else f"{said} {step}")
    return left


def _say_rest(session: Session, unfetched: Unfetched | None, left: _Left, *, is_asked: bool) -> int:
    """Say how many entries stood in the store, are not back, and are named by nothing here."""
    if unfetched is None:
        return 0
    not_back = unfetched.without(left.times)
    rest = max(0, not_back.lost - left.missing)
    if not rest:
        return 0
    words = counted(rest, "entry", "entries")
    words += " more that the store held" if left.missing else " that the store held"
    words += " is still missing" if rest == 1 else " are still missing"
    newest = (short(of) for of, id_ in not_back.ends if id_ not in left.named)
    if names := ", ".join(dict.fromkeys(newest)):
        words += f"; the last ones written were of {names}"
    why = GONE_WORDS if is_asked else LOST_WORDS
    step = import_step(why, next_command(session.settings, "import", "FILE"))
    session.out.note(f"{words}. {step}")
    return rest


def _report(session: Session, key_words: str, done: StoreRepair, rest: _Rest) -> None:
    record: dict[str, Any] = {
        "key": key_words or None,
        "store": done.why or None,
        "set_aside": str(done.aside) if done.aside is not None else None,
        "kept": done.kept,
        "unread": done.lost,
        "deletions_kept": done.deletions_kept,
        "deletions_lost": done.deletions_lost,
        "missing": rest.missing,
    }
    if session.out.as_json:
        session.out.emit(record)
        return
    words = ["repaired"] if done.why or key_words or rest.was_left else []
    if rest.missing:
        words.append(counted(rest.missing, "entry is", "entries are") + " still missing")
    elif rest.is_open:
        words.append("the hub is to be asked for what is missing")
    session.out.show("; ".join(words) or "nothing to repair")
