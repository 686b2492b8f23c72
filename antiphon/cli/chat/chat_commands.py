"""The /commands of a chat."""

from collections.abc import Awaitable, Callable
from typing import Any

from rich.text import Text

from antiphon.cli.chat.chat_session import ChatSession, Turn
from antiphon.cli.chat.take_back import take_back
from antiphon.cli.commands import (
    all_entries,
    cancel_awaited,
    check_label,
    name_branch,
    place_record,
    print_entries,
    report_cancelled,
    report_synced,
    show_branches,
    switch_to,
    title_record,
)
from antiphon.cli.common import (
    BranchUnknown,
    NoSuchCommand,
    NothingBehind,
    NothingYet,
    again_place,
    check_calls,
    check_role,
    continued_form,
    continued_place,
    find_entry,
)
from antiphon.cli.views import (
    PREVIEW_CELLS,
    counted,
    cut,
    followed,
    followed_next,
    is_undone,
    row_of,
)
from replica.conversation import Place, place_at, with_conflict
from replica.errors import AntiphonError, with_step
from replica.ids import EntryId
from replica.io import documents
from replica.log import Conflict, Kind, Message, Speaker
from replica.order import branch_ends

HELP = """\
/undo           undo the last turn; the next message comes in its place
/again          ask for another answer to the last message
/continue       go on with an answer that was cut off
/cancel         cancel the awaited answers on this branch; keep received text
/fork [ENTRY]   let the next message follow ENTRY, else the last answer
/branches       list the branches; /branches NAME names this one for all members
/switch BRANCH  go to another branch: its name, or digits of an entry on it
/title [TITLE]  show or set the title, for all members
/name NAME      propose a name for yourself to all members
/log            show this branch
/status         show the state of the conversation at the hub
/help           show this help
/quit           leave, as does Ctrl-D; the conversation is kept
Ctrl-C          cancel the answer and keep received text; again: leave
Ctrl-Z          stop the chat; `fg` in the shell goes on with it
\"\"\"             begin and end a message of several lines; a paste is one too"""


class Leave(Exception):  # it is no error
    """The user asked to leave."""


def is_command(typed: str) -> bool:
    """Say whether what was typed is a command; a text of several lines, such as code, is none."""
    return typed.startswith("/") and "\n" not in typed


async def run(chat: ChatSession, line: str) -> Turn | None:
    """Run a /command; return the turn it asks for, if any. Raises Leave, AntiphonError."""
    name, _, rest = line.removeprefix("/").partition(" ")
    name, rest = name.strip(), rest.strip()
    if rest and name in _ALONE:
        raise NothingBehind(f"/{name} takes nothing, and was not run")
    if name in _FOR_WRITERS:
        chat.check_sent()
        check_role(chat.replica, chat.held)
    match name:
        case "quit" | "exit" | "q":
            raise Leave
        case "again":
            return Turn(await _again(chat))
        case "continue":
            place = continued_place(chat.held, chat.place())
            return Turn(place, form=continued_form(chat.held, place))
        case "help" | "?":
            chat.session.out.note(HELP)
        case known if known in _COMMANDS:
            await _COMMANDS[known](chat, rest)
        case unknown:
            raise NoSuchCommand(f"there is no /{unknown}")
    return None


async def undo(chat: ChatSession, _rest: str) -> None:
    """Let the next message come in place of the last one, whose answer is cancelled."""
    last = await _last_question(chat)
    what = await take_back(chat, last)
    await chat.go_instead_of(last)
    words = row_of(chat.held, chat.held.log.entries[last], chat.names).text
    chat.session.out.note(f"undone: {cut(' '.join(words.split()), PREVIEW_CELLS)}")
    chat.session.out.note(Text(what, style="dim"))
    _emit(chat, {"conversation": chat.held.id.hex(), "undone": last.hex()})


async def cancel(chat: ChatSession, _rest: str) -> None:
    """Cancel what the next message would wait for."""
    chat.check_sent()
    check_calls(chat.session, chat.replica, chat.held, chat.place())
    closed = await cancel_awaited(chat.replica, chat.held, chat.place())
    report_cancelled(chat.session, chat.replica, chat.held, chat.place(), closed, chat.names)


async def fork(chat: ChatSession, prefix: str) -> None:
    """Let the next message follow an entry, by default the last answer."""
    at = find_entry(chat.held, prefix) if prefix else await _last_answer(chat)
    place = place_at(chat.held, at)
    await chat.go_to(at)
    row = row_of(chat.held, followed(chat.held, place), chat.names)
    chat.session.out.note(followed_next(row))
    _emit(chat, place_record(chat.held, place, at.hex()))


async def branches(chat: ChatSession, name: str) -> None:
    """List the branches, or name this one."""
    choices = chat.choices()
    if name:
        chat.check_sent()
        await name_branch(chat.replica, chat.held, choices, name)
    show_branches(chat.session, chat.held, choices)


async def switch(chat: ChatSession, branch: str) -> None:
    """Go to another branch, and show its end."""
    if not branch:
        raise BranchUnknown("/switch needs a branch")
    choices = await switch_to(chat.session, chat.replica, chat.held, branch)
    chat.branch, chat.at = choices.branch, ""
    if chat.session.out.as_json:
        show_branches(chat.session, chat.held, choices)


async def title(chat: ChatSession, title: str) -> None:
    """Show or set the title."""
    if title:
        check_role(chat.replica, chat.held)
        chat.check_sent()
        await documents.set_title(chat.replica, chat.held.id, check_label(title))
    shown = documents.title_of(chat.held)
    chat.session.out.note(shown or "it has no title yet; /title TITLE sets one")
    _emit(chat, title_record(chat.held, shown))


async def name(chat: ChatSession, name: str) -> None:
    """Propose a name for oneself."""
    check_role(chat.replica, chat.held)
    chat.check_sent()
    await documents.propose_name(chat.replica, chat.held.id, check_label(name))
    chat.session.out.note(f"all members see {name} with digits of your key")
    _emit(chat, {"conversation": chat.held.id.hex(), "name": name})


async def log(chat: ChatSession, _rest: str) -> None:
    """Print this branch; with --json all entries, as `antiphon log` does."""
    shown = all_entries(chat.held) if chat.session.out.as_json else chat.entries()
    print_entries(chat.session, chat.held, shown, chat.names)


async def status(chat: ChatSession, _rest: str) -> None:
    """Print the state of the conversation at the hub; with --json as `antiphon status` does."""
    if chat.session.out.as_json:
        one = chat.held.id
        await report_synced(chat.session, chat.replica, [one], one.hex())
        return
    hub = chat.replica.hub
    state = hub.state(chat.held.id).value
    branches = counted(len(branch_ends(chat.held.order)), "branch", "branches")
    fault = hub.refusal(chat.held.id)
    if fault is not None and not fault.retryable:  # as `antiphon status` has it
        state = f"refused [{fault.reason}]"
    try:
        chat.check_sent()
    except AntiphonError as error:
        state = f"refused [{error.reason}]"
    chat.session.out.note(
        f"{state} · {len(chat.held.log)} entries"
        f" · {hub.unsynced(chat.held.id)} not at the hub yet · {branches}"
    )


def _emit(chat: ChatSession, record: dict[str, Any]) -> None:
    """Write what a command did, which people were told, as data."""
    if chat.session.out.as_json:
        chat.session.out.emit(record)


async def _again(chat: ChatSession) -> Place:
    """Return the place of another answer to the last message, beside one that it still waits for.

    Raises NothingYet.
    """
    last = await _last(chat, Kind.MESSAGE)
    end = chat.place()
    place = again_place(chat.held, end)
    beside = with_conflict(chat.held, place_at(chat.held, last), Conflict.FORK)
    return place if place != end else beside


async def _last_answer(chat: ChatSession) -> EntryId:
    """Return the last answer on this branch. Raises NothingYet."""
    try:
        return await _last(chat, Kind.GENERATION)
    except NothingYet as error:
        if chat.entries():
            with_step(error, "`/fork ENTRY` follows any entry; `/log` shows them.")
        raise


async def _last(chat: ChatSession, kind: Kind) -> EntryId:
    """Return the last entry of a kind on this branch. Raises NothingYet."""
    for entry in reversed(chat.entries()):
        if entry.header.kind == kind and not is_undone(chat.held, entry):
            return entry.id
    raise NothingYet(f"there is no {_WORDS[kind]} on this branch yet")


async def _last_question(chat: ChatSession) -> EntryId:
    """Return what a member said last on this branch: no system text, and no part of a tool's call.

    Raises NothingYet.
    """
    for entry in reversed(chat.entries()):
        body = chat.held.log.body(entry.id)
        is_said = isinstance(body, Message) and body.speaker == Speaker.USER
        if is_said and not is_undone(chat.held, entry):
            return entry.id
    raise NothingYet("there is no question on this branch yet")


_WORDS = {Kind.MESSAGE: "message", Kind.GENERATION: "answer"}
_ALONE = frozenset(
    ("quit", "exit", "q", "again", "continue", "help", "?", "undo", "cancel", "log", "status")
)
"""The commands that take nothing."""
_FOR_WRITERS = frozenset(("again", "continue", "undo", "fork"))
"""The commands about what is written next."""
_COMMANDS: dict[str, Callable[[ChatSession, str], Awaitable[None]]] = {
    "undo": undo,
    "branches": branches,
    "switch": switch,
    "title": title,
    "name": name,
    "cancel": cancel,
    "fork": fork,
    "log": log,
    "status": status,
}
