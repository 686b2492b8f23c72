"""`antiphon clone`: fetch conversations that this replica does not hold from the hub."""

from dataclasses import dataclass
from typing import Annotated

import typer
from rich.text import Text

from antiphon.cli.common import (
    NotAtTheHub,
    PrefixUnknown,
    Session,
    Settings,
    command,
    failures_of,
    next_command,
    only_match,
    refusals_of,
)
from antiphon.cli.views import brief, counted, step_of, title_of
from replica.conversation import Conversation, refusal_of
from replica.errors import AntiphonError, StoreError
from replica.ids import ID_BYTES, ConversationId, PublicKey, short
from replica.io import Replica, fetch_missing, listed, require_link
from replica.refusals import ConversationUnknown


@dataclass(frozen=True, slots=True)
class Fetched:
    """The outcome of fetching one conversation."""

    held: Conversation | None
    """The conversation as it is here now; None if nothing of it is."""
    new: int
    """Entries that were not here before."""
    is_complete: bool
    refusal: AntiphonError | None = None
    """Why it is not complete, if the hub or the store here said so."""
    is_own: bool = False
    """Whether the store here said so."""


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "clone", rich_help_panel="Keep")
    async def clone(
        session: Session,
        conversation: Annotated[
            str | None,
            typer.Argument(metavar="ID", help="Conversation; without, all of yours at the hub."),
        ] = None,
    ) -> int:
        """Fetch conversations from the hub: one, or all that your key is a member of."""
        async with session.replica() as replica:
            await require_link(replica, session.settings.sync_timeout_s)
            wanted = await _wanted(replica, conversation)
            if not wanted:
                session.out.note(_nothing_words(session.settings, replica.public))
                return 1
            complete, last = True, _LastWritten(replica.public)
            for one in wanted:
                fetched = await fetch(session, replica, one)
                complete = complete and fetched.is_complete
                _report(session, one, fetched)
                last.note(fetched.held)
            held = [stored.conversation for stored in await replica.store.conversations()]
            if await session.current(replica.store, held) is None:
                used = last.conversation if conversation is None else wanted[0]
                if used in held:
                    await session.use(replica.store, used)
            return 0 if complete else 1


@dataclass(slots=True)
class _LastWritten:
    """The conversation in which a key wrote last.

    The hub lists those of strangers too, who gave this key a role (DECISIONS D619).
    """

    key: PublicKey
    conversation: ConversationId | None = None
    time_ms: int = -1

    def note(self, held: Conversation | None) -> None:
        """Look at one more conversation."""
        headers = (entry.header for entry in held.log.entries.values()) if held is not None else ()
        own_ms = max((one.create_time_ms for one in headers if one.author == self.key), default=-1)
        if held is not None and own_ms > self.time_ms:
            self.conversation, self.time_ms = held.id, own_ms


def _nothing_words(settings: Settings, key: PublicKey) -> str:
    new, join = next_command(settings, "new"), next_command(settings, "join", "CODE")
    restore = next_command(settings, "key", "restore", "BACKUP")
    return (
        f"the hub lists no conversation for your key {key.hex()}. next: {new}, or {join} with an"
        f" owner's invitation; if yours are of another key, {restore}"
    )


async def _wanted(replica: Replica, prefix: str | None) -> tuple[ConversationId, ...]:
    if prefix is not None and len(prefix.strip()) == 2 * ID_BYTES:
        whole = prefix.strip().lower()
        return (ConversationId(only_match(whole, _ids(whole), "conversation here", PrefixUnknown)),)
    known = await listed(replica.calls())
    if prefix is None:
        return known
    return (ConversationId(only_match(prefix, known, "conversation at the hub", NotAtTheHub)),)


def _ids(text: str) -> list[ConversationId]:
    """Return the id that a text writes in full; none if it is no id."""
    try:
        return [ConversationId(bytes.fromhex(text))]
    except ValueError:
        return []


async def fetch(session: Session, replica: Replica, conversation: ConversationId) -> Fetched:
    """Follow a conversation until it is in sync, is refused, can't be stored, or no more comes."""

    def count() -> int:
        return _entries(replica.shelf.get(conversation))

    # What fails at a disk passes too, but not while somebody waits for a command.
    with (
        refusals_of(replica, conversation, StoreError) as refusals,
        failures_of(replica, conversation) as failures,
    ):

        def is_decided() -> bool:
            hub = replica.hub
            return bool(refusals) or not hub.is_linked or hub.is_in_sync(conversation)

        try:
            await replica.follow(conversation)
            first = before = count()
            while not await replica.wait_for(is_decided, session.settings.sync_timeout_s):
                if count() == before:
                    break
                before = count()
            is_complete = replica.hub.is_in_sync(conversation) and count() > 0
            if is_complete:
                await fetch_missing(replica, conversation)
        finally:
            replica.unfollow(conversation)
    held = await _held(replica, conversation)
    refusal = (*failures, *refusals, None)[0]
    if held is not None and refusal is not None:
        refusal = refusal_of(held, replica.public, refusal)
    return Fetched(held, _entries(held) - first, is_complete, refusal, is_own=bool(failures))


async def _held(replica: Replica, conversation: ConversationId) -> Conversation | None:
    """Return what is here now, read again where a store that failed left it out of memory."""
    try:
        held = await replica.load(conversation)
    except (ConversationUnknown, StoreError):  # the failure is told in any case
        return None
    return held if _entries(held) else None


def _entries(held: Conversation | None) -> int:
    # Pending entries are here as well: behind a lost grant all later ones are pending.
    return len(held.log) + len(held.log.pending) if held is not None else 0


def _report(session: Session, conversation: ConversationId, fetched: Fetched) -> None:
    entries = len(fetched.held.log) if fetched.held is not None else 0
    if session.out.as_json:
        session.out.emit(
            {
                "conversation": conversation.hex(), "entries": entries, "new": fetched.new,
                "synchronized": fetched.is_complete,
                "refusal": fetched.refusal.reason if fetched.refusal is not None else None,
            }
        )  # fmt: skip
        return
    new = f"  {counted(entries, 'entry', 'entries')}, {fetched.new:,} new"
    title = title_of(fetched.held) if fetched.held is not None else ""
    session.out.show(Text.assemble(short(conversation), (new, "dim"), "  ", title))
    if words := _words(fetched):
        session.out.note(f"{short(conversation)} {words}")


def _words(fetched: Fetched) -> str:
    """Return what keeps a conversation from being complete, and what to do; empty if nothing."""
    refusal, again = fetched.refusal, "antiphon clone continues where it stopped"
    if refusal is None:
        return "" if fetched.is_complete else f"is not complete; {again}"
    if fetched.is_own:
        return f"can't be stored here: {brief(refusal)}. {step_of(refusal)} Then {again}."
    if isinstance(refusal, StoreError):
        return f"can't be fetched from the hub now: {brief(refusal)}; {again}"
    return f"is refused: {brief(refusal)}"
