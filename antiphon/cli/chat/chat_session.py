"""A chat in one conversation, whatever shows it: its place and its turns."""

from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from antiphon.cli.commands import unique_digits
from antiphon.cli.common import (
    Choices,
    DeletedHere,
    Session,
    check_readable,
    check_text,
    continuable,
    may_write,
    options_for,
    raise_refusal,
    say_forks,
    write_turn,
)
from antiphon.cli.terminal import without_quotes
from antiphon.cli.views import TALK, Names, counted, detail_of, entries_at, is_listed, losses_in
from replica.conversation import Conversation, KeyRemoved, Place, removal_of, with_conflict
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, short
from replica.io import Replica, RequestOptions, answers, begin, cancels, documents
from replica.log import Conflict, Entry, Generation, reach
from replica.refusals import ConversationDeleted

CONTINUE_STEP = "/continue goes on"
REFUSED_STEP = (
    "/undo takes the message back, and /fork ENTRY then goes further back; /again asks once more."
)


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn to be written: at a place, with a message or without."""

    place: Place
    text: str | None = None
    form: dict[str, Any] = field(default_factory=dict)
    """The form and the choice of tools of the answer that goes on; see `continued_form`."""


@dataclass(slots=True)
class ChatSession:
    """A chat in one conversation."""

    session: Session
    replica: Replica
    held: Conversation
    conflict: Conflict | None
    changes: dict[str, Any]
    """What the user states for each request; see `options_for`."""
    names: Names = field(default_factory=Names)
    branch: str = ""
    """Hex id of the request whose branch is shown. Others' branches don't change it."""
    at: str = ""
    """Hex id of the entry that the user chose for the next message; empty for none.

    Other processes on this folder choose for themselves, and don't change it.
    """
    is_instead: bool = False
    """Whether the next message comes in place of the message `at`."""
    recent_max: int = 6
    """Messages shown at the beginning."""
    undone: set[EntryId] = field(default_factory=set)
    """What this user wrote from a message on that was undone; its answer is no news."""
    refusal: AntiphonError | None = None
    """Why nobody takes anything of this conversation, for good; it is only read then."""

    async def begin(self) -> None:
        """Read the names, and go on where this replica's last command left off."""
        await self.read_names()
        saved = await self.session.choices(self.replica.store, self.held.id)
        self.branch, self.at, self.is_instead = saved.branch, saved.at, saved.is_instead
        self.pin(self.place())

    # --- the place of the next message ---------------------------------------------

    def choices(self) -> Choices:
        """Return the entry that was chosen for the next message, else the branch shown."""
        if self.at:
            return Choices(self.at, self.is_instead)
        return Choices(branch=self.branch)

    async def go_to(self, entry_id: EntryId, *, is_instead: bool = False) -> None:
        """Let the next message follow an entry, or come in place of it."""
        self.at, self.is_instead = entry_id.hex(), is_instead
        # The next command goes on from there, if the chat ends before.
        await self.session.choose_next(self.replica.store, self.held.id, self.choices())

    async def go_instead_of(self, message: EntryId) -> None:
        """Let the next message come in place of one that is undone."""
        log = self.held.log
        behind = reach([message], log.children)
        me = self.replica.public
        self.undone |= {i for i in behind if log.entries[i].header.author == me}
        await self.go_to(message, is_instead=True)

    async def read_names(self) -> None:
        """Read the names of keys, after a change of the document."""
        self.names = await self.session.names(self.replica.store, self.held)

    def pin(self, place: Place) -> None:
        """Stay on the branch that ends at `place` when another one arises below it."""
        request = EntryId(bytes.fromhex(self.branch))
        is_sealed = not self.branch or request in self.held.order.seal_of
        if place.basis is not None and place.conflict is Conflict.QUEUE and is_sealed:
            self.branch = self.held.order.nodes[place.basis].seal.request.hex()

    def short(self, entry: EntryId) -> str:
        """Return the first digits of an entry's id, as many as make it unique here."""
        return unique_digits(entry, self.held.log.entries)

    def place(self) -> Place:
        """Return the place of the next message."""
        return self.choices().place(self.held)

    def continue_step(self, answer: EntryId) -> str:
        """Return how an answer that was cut off goes on; empty where it is not `continuable`."""
        is_next = continuable(self.held, self.place()) == answer
        return CONTINUE_STEP if is_next and may_write(self.replica, self.held) else ""

    def entries(self) -> list[Entry]:
        """Return the words on this branch."""
        entries = entries_at(self.held, self.place())
        words = [entry for entry in entries if entry.header.kind in TALK]
        return [entry for entry in words if is_listed(self.held, entry)]

    @property
    def hears_nothing_more(self) -> bool:
        """Whether no answer can come: the hub refuses all of it, or is never linked again."""
        hub = self.replica.hub
        is_refused = self.refusal is not None or hub.ending(self.held.id) is not None
        return is_refused or hub.lasting_error is not None

    def check_sent(self) -> None:
        """Raise KeyRemoved, ConversationDeleted where nobody would accept what is written.

        What was said once holds for good, also where the hub is away, or the conversation gone.
        """
        if self.refusal is not None:
            raise type(self.refusal)(self.refusal.detail) from self.refusal
        try:
            self.replica.hub.check_taken(self.held)
        except AntiphonError as error:
            self.refusal = error
            raise

    async def look_if_deleted(self) -> None:
        """Note it if another command has deleted the conversation from this folder."""
        if self.refusal is None and not await self.replica.store.has(self.held.id):
            self.refusal = DeletedHere()

    def ending(self) -> AntiphonError | None:
        """Return why nothing that is written from now on is taken, if that is so.

        An entry says so where this key removed itself; otherwise the hub's refusal does.
        """
        try:
            self.check_sent()
        except AntiphonError as error:
            return error
        return removal_of(self.held, self.replica.public)

    async def turn(self, typed: str) -> Turn | None:
        """Return the turn that says what was typed, on this branch; None for a blank text.

        Raises ArgumentInvalid, MessageTooLong, and what `check_sent` raises.
        """
        text = check_text(without_quotes(typed))
        if not text.strip():
            return None
        self.check_sent()
        place = self.place()
        if self.conflict is not None:
            place = with_conflict(self.held, place, self.conflict)
        return Turn(place, text)

    async def options(self, turn: Turn) -> RequestOptions:
        """Return the options of a turn's request. Raises what `check_sent` raises."""
        self.check_sent()
        changes = self.changes | turn.form
        await begin.learn_hosts_of(self.replica, self.held, profile=changes.get("profile"))
        return options_for(self.replica, self.held, changes=changes)

    async def write(self, turn: Turn) -> answers.Asked:
        """Write a turn; durable here when it returns. Raises the errors of `write_turn`."""
        options = await self.options(turn)
        asked = await write_turn(
            self.session, self.replica, self.held, turn.text, turn.place, options, self.choices()
        )
        self.follow(asked)
        return asked

    def follow(self, asked: answers.Asked) -> None:
        """Stay on the branch of a turn that was just written."""
        self.branch, self.at = asked.request.hex(), ""

    async def cancel(self, request: EntryId) -> None:
        """Cancel a request. Raises what `check_sent` raises."""
        self.check_sent()
        await cancels.cancel(self.replica, self.held.id, request)

    async def greet(self, *, online: bool) -> None:
        """Show which conversation this is, and its problems."""
        out, held = self.session.out, self.held
        count = counted(len(self.entries()), "message", "messages")
        title = documents.title_of(held)
        name = f"{title} · " if title else ""
        out.note(Text(f"{name}conversation {short(held.id)} · {count} · /help", style="dim"))
        if self.refusal is not None:
            out.note(f"{detail_of(self.refusal)}; showing the local copy")
        elif held.is_blocked:
            self.session.say_damaged(held, await losses_in(self.replica.store, held))
        elif not may_write(self.replica, held):
            out.note("you can read this conversation; to write, ask an owner for an invitation")
        elif not online:
            await self.session.say_offline(self.replica, held)
        say_forks(self.session, held)


def raise_if_refused(generation: Generation) -> None:
    """Raise the host's refusal if `generation` is one, with the way to go on in a chat."""
    raise_refusal(generation, REFUSED_STEP)


async def open_chat(
    session: Session,
    replica: Replica,
    chosen: ConversationId,
    conflict: Conflict | None,
    changes: dict[str, Any],
) -> ChatSession:
    """Sync a conversation and greet the user; one that was deleted is only read.

    So it is where the key was removed.
    """
    await replica.load(chosen)
    online, refused = False, None
    try:
        online = await session.sync(replica, chosen)
    except (KeyRemoved, ConversationDeleted) as refusal:
        refused = refusal
    held = check_readable(await replica.load(chosen))
    refused = refused or removal_of(held, replica.public)
    await session.use(replica.store, chosen)
    chat = ChatSession(session, replica, held, conflict, changes, refusal=refused)
    await chat.begin()
    await chat.greet(online=online)
    return chat
