"""`antiphon list` and `antiphon status`: local conversations and their state at the hub."""

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import typer
from rich.text import Text

from antiphon.cli.commands.overview_tables import (
    FULL_CELLS,
    ConversationStatus,
    last_ms,
    list_record,
    list_table,
    status_record,
    status_table,
)
from antiphon.cli.common import (
    STILL_READ,
    ConversationArgument,
    Session,
    command,
    elsewhere_words,
    ending_of,
    hub_record,
    load_from,
    next_command,
    offline_words,
    say_forks,
    served_by,
    unsynced_words,
)
from antiphon.cli.views import (
    NO_BRANCH,
    BranchView,
    brief,
    join_lines,
    join_record,
    losses_in,
    queue_words,
    still_pending,
    view_of,
)
from replica.conversation import (
    Conversation,
    EntryStore,
    answers_ahead,
    removal_of,
    waiting_beside,
)
from replica.errors import AntiphonError, StoreError
from replica.ids import ConversationId, EntryId, PublicKey, short
from replica.io import (
    PendingJoin,
    Replica,
    SavedAcks,
    means_away,
    now_ms,
    pending_joins,
)
from replica.log import Lost
from replica.refusals import ConversationUnknown

NOT_ASKED = "not asked"
DAMAGED = "damaged"


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
        statuses.sort(key=lambda s: last_ms(s) or 0)
        if session.out.as_json:
            for status in statuses:
                session.out.emit(list_record(status, current))
            for join in joins:
                session.out.emit(join_record(join, now_ms()))
            return
        if statuses:
            session.out.data.print(list_table(statuses, current, width=_width(session)))
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


def _width(session: Session) -> int:
    data = session.out.data
    return data.width if data.is_terminal else FULL_CELLS


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
        elsewhere=await _elsewhere(session, replica, statuses),
    )  # fmt: skip


async def _elsewhere(session: Session, replica: Replica, statuses: list[ConversationStatus]) -> str:
    helds = [status.held for status in statuses if not status.is_refused]
    return await elsewhere_words(replica, session.settings.hub, helds)


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
    is_refused: Callable[[EntryId], bool] = lambda _: False,
) -> tuple[BranchView, str]:
    """Return the branch that the next message continues, and who is answered there.

    `linked` are the hosts that the hub has now, None where nobody knows. Of a request that
    the hub refused, no host learns.

    Nobody is where this key gets nothing more of the conversation: no answer can come.
    """
    if held.log.genesis is None or has_ended:
        return NO_BRANCH, ""
    place = (await session.choices(store, held.id)).place(held)
    asked = (*answers_ahead(held, place), *waiting_beside(held, place))
    view = view_of(held, place, given_up={i for i in asked if is_refused(i)})
    return view, queue_words(held, view, await session.names(store, held), linked)


def _unreadable(conversation: ConversationId) -> Conversation:
    """Return an empty conversation in place of an unreadable one."""
    return Conversation.restore(conversation, (), Lost(is_unreadable=True))


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

    def is_refused(request: EntryId) -> bool:
        fault = replica.hub.denial(conversation, request)
        return fault is not None and fault.entry == request

    view, queue = await _queue(
        session, replica.store, held, linked, has_ended=has_ended, is_refused=is_refused
    )
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
    elsewhere: str = "",
) -> None:
    out = session.out
    if out.as_json:
        records = [status_record(s) for s in statuses]
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
        out.data.print(status_table(statuses, width=_width(session)))
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
    elif elsewhere:
        out.note(elsewhere)
    elif statuses and hub["state"] == "away":
        unsynced = sum(s.unsynced for s in statuses if not s.is_refused)
        out.note(offline_words(unsynced, kept=sum(s.unsynced for s in statuses) - unsynced))
