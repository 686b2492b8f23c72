"""`antiphon list` and `antiphon status`: local conversations and their state at the hub."""

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from antiphon.cli.branch_view import NO_BRANCH, BranchView, queue_words, view_of
from antiphon.cli.command import ConversationArgument, command
from antiphon.cli.endings import ending_of
from antiphon.cli.forks import fork_records, say_forks
from antiphon.cli.hub_view import hub_record, served_by
from antiphon.cli.joins import join_lines, join_record, still_pending
from antiphon.cli.losses import NO_LOSSES, Losses, losses_in, losses_record
from antiphon.cli.names import KEY_DIGITS
from antiphon.cli.next_command import next_command
from antiphon.cli.output import brief, harmless
from antiphon.cli.rows import cut, entries_at, is_listed, words_of
from antiphon.cli.session import STILL_READ, Session, load_from, offline_words, unsynced_words
from antiphon.cli.tables import plain_table
from antiphon.cli.undone import is_undone
from replica.conversation import Conversation, EntryStore, newest_place, removal_of
from replica.errors import AntiphonError, StoreError
from replica.ids import ConversationId, PublicKey, short
from replica.io import PendingJoin, Replica, SavedAcks, documents, means_away, now_ms, pending_joins
from replica.log import Kind, Lost, Message, Speaker
from replica.order import branch_ends
from replica.refusals import ConversationUnknown

TITLE_CELLS = 48
NARROW_CELLS = 80
FLEXIBLE_CELLS_MIN = 8
NOT_ASKED = "not asked"
DAMAGED = "damaged"
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ConversationStatus:
    """The sync status of one conversation."""

    held: Conversation
    unsynced: int
    acked_ms: int | None
    state: str
    refusal: str = ""
    view: BranchView = NO_BRANCH
    """The branch that the next message continues."""
    queue: str = ""
    """Whose answer is under way there, and who is next."""
    refusal_words: str = ""
    """The refusal with its next step."""
    losses: Losses = NO_LOSSES
    """What the store lost of it."""
    is_refused: bool = False
    """Whether the hub gives this key nothing of it."""


def register(app: typer.Typer) -> None:
    """Add the commands."""

    @command(app, "list", rich_help_panel="Look")
    async def list_(session: Session) -> None:
        """List the conversations held here; the one used last is marked."""
        statuses: list[ConversationStatus] = []
        joins: list[PendingJoin] = []
        current = None
        if session.has_store():
            async with session.reading() as store:
                stored = [s.conversation for s in await store.conversations()]
                current = await session.current(store, stored)
                statuses = await _all_local(session, store, stored)
                joins = await _joins(session, store, statuses)
                session.say_lost(store)
        statuses.sort(key=lambda s: _last_ms(s) or 0)
        if session.out.as_json:
            for status in statuses:
                session.out.emit(_list_record(status, current))
            for join in joins:
                session.out.emit(join_record(join, now_ms()))
            return
        if statuses:
            session.out.data.print(_list_table(statuses, current))
        elif not joins:
            _say_nothing_yet(session)
        _say_damaged(session, statuses)
        _say_joins(session, joins)

    @command(app, "status", rich_help_panel="Look")
    async def status(session: Session, conversation: ConversationArgument = None) -> None:
        """Show the sync status: heads, unsynced entries, last ack, state."""
        wanted = await _wanted(session, conversation)
        try:
            async with session.replica() as replica:
                await report_synced(session, replica, wanted, conversation)
        except STILL_READ as error:
            async with session.reading() as store:
                statuses = await _all_local(session, store, wanted)
                joins = await _joins(session, store, statuses, conversation)
                session.say_lost(store)
            hub: dict[str, Any] = {
                "address": session.settings.hub, "state": NOT_ASKED, "key": None,
                "error": brief(error), "next_step": error.next_step, "hosts": [],
            }  # fmt: skip
            _report(session, statuses, joins, hub)


async def report_synced(
    session: Session, replica: Replica, wanted: list[ConversationId], prefix: str | None
) -> None:
    """Sync conversations and print their status; without a prefix, that of joins too."""
    statuses = [await _synced(session, replica, c) for c in wanted]
    joins = await _joins(session, replica.store, statuses, prefix)
    if not wanted:
        await replica.wait_for(lambda: replica.hub.is_tried, 1.0)
    error = replica.hub.last_error
    _report(
        session, statuses, joins, hub_record(session, replica), served_by(replica),
        is_refused=error is not None and not means_away(error),
    )  # fmt: skip


async def _wanted(session: Session, prefix: str | None) -> list[ConversationId]:
    if prefix is None and not session.has_store():
        return []  # the hub's status is shown anyway
    async with session.reading() as store:
        if prefix is not None:
            return [await session.choose(store, prefix)]
        return [stored.conversation for stored in await store.conversations()]


async def _all_local(
    session: Session, store: EntryStore, conversations: list[ConversationId]
) -> list[ConversationStatus]:
    statuses = []
    for conversation in conversations:
        # A damaged row may contain an id that is no conversation.
        with suppress(ConversationUnknown):
            statuses.append(await _local(session, store, conversation))
    return statuses


async def _local(
    session: Session, store: EntryStore, conversation: ConversationId
) -> ConversationStatus:
    refusal = refusal_words = ""
    try:
        held = await load_from(store, conversation)
    except StoreError as error:
        held, refusal = _unreadable(conversation), error.reason
    acks = await SavedAcks.of_hub(store, session.settings.hub)
    waiting = len(await acks.unacked(held))
    own = session.own_key()
    is_refused = own is not None and removal_of(held, own) is not None
    if (said := await ending_of(session, store, acks, held)) is not None:
        is_refused, refusal = True, said.reason
        refusal_words = f"{brief(said)}. {said.next_step}"
    view, queue = await _queue(session, store, held, has_ended=is_refused)
    return ConversationStatus(
        held, waiting, acks.acked_ms(conversation), NOT_ASKED, refusal, view, queue,
        refusal_words, losses=await losses_in(store, held), is_refused=is_refused,
    )  # fmt: skip


async def _queue(
    session: Session,
    store: EntryStore,
    held: Conversation,
    linked: Collection[PublicKey] | None = None,
    *,
    has_ended: bool,
) -> tuple[BranchView, str]:
    """Return the branch that the next message continues, and who is answered there.

    `linked` are the hosts that the hub has now, None where nobody knows.

    Nobody is where this key gets nothing more of the conversation: no answer can come.
    """
    if held.log.genesis is None or has_ended:
        return NO_BRANCH, ""
    view = view_of(held, (await session.choices(store, held.id)).place(held))
    return view, queue_words(held, view, await session.names(store, held), linked)


def _unreadable(conversation: ConversationId) -> Conversation:
    """Return an empty conversation in place of an unreadable one."""
    return Conversation.restore(conversation, (), Lost(is_unreadable=True))


def _last_ms(status: ConversationStatus) -> int | None:
    entries = status.held.log.entries.values()
    return max((entry.header.create_time_ms for entry in entries), default=None)


async def _joins(
    session: Session,
    store: EntryStore,
    statuses: list[ConversationStatus],
    prefix: str | None = None,
) -> list[PendingJoin]:
    """Return the joins without an answer, beside the status of all conversations alone."""
    if prefix is not None:
        return []
    helds = [status.held for status in statuses]
    return still_pending(await pending_joins(store), helds, session.own_key(), now_ms())


def _say_joins(session: Session, joins: list[PendingJoin]) -> None:
    again = next_command(session.settings, "join", "CODE")
    for line in join_lines(joins, now_ms(), again):
        session.out.note(line)


def _say_nothing_yet(session: Session) -> None:
    session.out.note(f"no conversation yet; next: {next_command(session.settings, 'new')}")


def _say_damaged(session: Session, statuses: list[ConversationStatus]) -> None:
    for status in statuses:
        if status.held.damage or status.losses.count:
            session.say_damaged(status.held, status.losses, is_refused=status.is_refused)


async def _synced(
    session: Session, replica: Replica, conversation: ConversationId
) -> ConversationStatus:
    """Sync one conversation and return its status, including a refusal."""
    refusal = refusal_words = ""
    try:
        await session.sync(replica, conversation)
    except AntiphonError as error:
        refusal, refusal_words = error.reason, f"{brief(error)}. {error.next_step}"
    held = replica.shelf.get(conversation) or _unreadable(conversation)
    waiting, acked_ms = replica.hub.unsynced(conversation), replica.acks.acked_ms(conversation)
    fault = replica.hub.refusal(conversation) if replica.hub.is_linked else None
    if waiting and not refusal and fault is not None:
        # One that may pass, such as a full disk of the hub, ends no sync.
        refusal, refusal_words = fault.reason, unsynced_words(replica, conversation)
    state = replica.hub.state(conversation).value
    is_removed = removal_of(held, replica.public) is not None
    if refusal == ConversationUnknown.reason and is_removed:
        # The hub has the entry that ended the membership, and so it took what came before.
        waiting, refusal, refusal_words = 0, "", ""
    if held.is_blocked:
        state = DAMAGED
    elif replica.hub.is_linked and not held.is_member(replica.public):
        state = "not a member"
    has_ended = is_removed or replica.hub.ending(conversation) is not None
    linked = {one.key for one in replica.hub.hosts} if replica.hub.is_linked else None
    view, queue = await _queue(session, replica.store, held, linked, has_ended=has_ended)
    losses = await losses_in(replica.store, held)
    return ConversationStatus(
        held, waiting, acked_ms, state, refusal, view, queue, refusal_words, losses,
        is_refused=has_ended or (fault is not None and not fault.retryable),
    )  # fmt: skip


def _report(
    session: Session,
    statuses: list[ConversationStatus],
    joins: list[PendingJoin],
    hub: dict[str, Any],
    through: str | None = None,
    *,
    is_refused: bool = False,
) -> None:
    out = session.out
    if out.as_json:
        records = [_status_record(s) for s in statuses]
        waiting = [join_record(join, now_ms()) for join in joins]
        out.emit({"hub": hub, "store": through, "conversations": records, "joins": waiting})
        return
    if through is not None:
        out.show(Text.assemble(("store ", "dim"), through))
    color = {"linked": "green", "away": "red"}.get(hub["state"], "yellow")
    out.show(Text.assemble(("hub   ", "dim"), hub["address"], "  ", (hub["state"], color)))
    if hub.get("error"):
        out.show(Text.assemble("      ", (hub["error"], "dim")))
    for host in hub["hosts"]:
        names = ", ".join(host["profiles"])
        mark = ("vouched for", "green") if host["vouched"] else ("not vouched for", "yellow")
        out.show(Text.assemble(("host  ", "dim"), f"{host['key'][:12]}  {names}  ", mark))
    if hub["state"] == "linked" and not hub["hosts"]:
        out.show(Text.assemble(("host  ", "dim"), ("none linked", "yellow")))
    if statuses:
        out.show()
        is_narrow = out.data.is_terminal and out.data.width < NARROW_CELLS
        out.data.print(_status_table(statuses, is_narrow=is_narrow))
        for status in statuses:
            for words in filter(None, (status.refusal_words, status.queue)):
                out.note(f"{short(status.held.id)}  {words}")
        _say_damaged(session, statuses)
        for status in statuses:
            say_forks(session, status.held)
    _say_joins(session, joins)
    if hub["state"] == NOT_ASKED or (is_refused and hub["state"] == "away"):
        out.note(f"next: {hub['next_step']}")
    elif not statuses and not joins:
        _say_nothing_yet(session)
    elif statuses and hub["state"] == "away":
        unsynced = sum(s.unsynced for s in statuses if not s.is_refused)
        out.note(offline_words(unsynced, kept=sum(s.unsynced for s in statuses) - unsynced))


def _status_table(statuses: list[ConversationStatus], *, is_narrow: bool) -> Table:
    extra = [] if is_narrow else ["heads", "branches"]
    table = _table("id", "entries", *extra, "unsynced", "last ack", "state")
    for status in statuses:
        log, ends = status.held.log, branch_ends(status.held.order)
        state = REFUSED if status.refusal else status.state
        color = {"synchronized": "green", "offline": "yellow"}.get(state, "red")
        table.add_row(
            short(status.held.id),
            str(len(log)),
            *([] if is_narrow else [str(len(log.heads())), str(len(ends))]),
            Text(str(status.unsynced), style="yellow" if status.unsynced else ""),
            ago(status.acked_ms),
            Text(state, style=color, no_wrap=True, overflow="ellipsis"),
        )
    return table


def _list_table(statuses: list[ConversationStatus], current: ConversationId | None) -> Table:
    table = _table("", "id", "title", "turns", "members", "last entry")
    for status in statuses:
        held = status.held
        table.add_row(
            "*" if held.id == current else "",
            short(held.id),
            Text(title_of(held), no_wrap=True, overflow="ellipsis"),
            str(_turns(held)),
            str(len(held.log.membership.members())),
            ago(_last_ms(status)),
        )
    return table


def _table(*columns: str) -> Table:
    table = plain_table()
    for name in columns:
        counts = name in ("entries", "heads", "branches", "unsynced", "turns", "members")
        # On a narrow terminal these columns are shortened.
        is_flexible = name in ("title", "state")
        table.add_column(
            name,
            justify="right" if counts else "left",
            no_wrap=not is_flexible,
            min_width=FLEXIBLE_CELLS_MIN if is_flexible else None,
        )
    return table


def _status_record(status: ConversationStatus) -> dict[str, Any]:
    log = status.held.log
    return {
        "conversation": status.held.id.hex(),
        "entries": len(log),
        "digest": log.digest.hex(),
        "heads": [
            {
                "author": head.lane.author.hex(),
                "epoch": f"{head.lane.epoch:016x}",
                "track": head.lane.track,
                "seq": head.seq,
                "id": head.id.hex(),
            }
            for head in log.heads()
        ],
        "branches": len(branch_ends(status.held.order)),
        **losses_record(status.losses),
        "forks": fork_records(status.held),
        "waiting": [i.hex() for i in status.view.waiting],
        "unsynced": status.unsynced,
        "last_ack_ms": status.acked_ms,
        "state": status.state,
        "refusal": status.refusal or None,
        "refusal_words": status.refusal_words or None,
    }


def _list_record(status: ConversationStatus, current: ConversationId | None) -> dict[str, Any]:
    held = status.held
    membership = held.log.membership
    return {
        "conversation": held.id.hex(),
        "title": title_of(held),
        "turns": _turns(held),
        "entries": len(held.log),
        "members": [
            {"key": key.hex(), "roles": sorted(r.name.lower() for r in membership.roles[key])}
            for key in membership.members()
        ],
        "unsynced": status.unsynced,
        "last_ack_ms": status.acked_ms,
        "is_current": held.id == current,
        **losses_record(status.losses),
        "is_damaged": held.is_blocked,
    }


def title_of(held: Conversation) -> str:
    """Return the title in the shared document, else the first user message, as one line."""
    if held.log.genesis is None:
        return "(damaged: its beginning is missing)"
    title = documents.title_of(held)
    if title is not None:
        return cut(harmless(" ".join(title.split())), TITLE_CELLS)
    standing = (e for e in entries_at(held, newest_place(held)) if not is_undone(held, e))
    for entry in standing:
        body = held.log.body(entry.id)
        if isinstance(body, Message) and body.speaker == Speaker.USER:
            return cut(harmless(" ".join(words_of(body.parts).split())), TITLE_CELLS)
    owner = next(iter(held.log.membership.roles), b"")
    return f"(no message yet; owner {owner.hex()[:KEY_DIGITS]})"


def _turns(held: Conversation) -> int:
    answers = (e for e in held.log.entries.values() if e.header.kind == Kind.GENERATION)
    return sum(is_listed(held, answer) for answer in answers)


def ago(unix_ms: int | None) -> str:
    """Return the time since `unix_ms` in the largest unit that fits."""
    if unix_ms is None:
        return "never"
    seconds = max(0.0, time.time() - unix_ms / 1000)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago" if seconds >= 1 else "now"
