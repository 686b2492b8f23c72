"""The panel below the transcript of a chat: the answer under way, who is next, what is typed."""

import shutil

from rich.text import Text

from antiphon.cli.chat.chat_session import ChatSession
from antiphon.cli.common import away_words
from antiphon.cli.terminal import LineEditor, Panel
from antiphon.cli.views import ANOTHER, BranchView, harmless
from replica.ids import EntryId

PROMPT = "> "
NEXT_MAX = 3
EDIT_ROWS_MAX = 10


def panel_of(
    chat: ChatSession, editor: LineEditor, view: BranchView, state: str, progress: Text
) -> Panel:
    """Return the panel of a branch; `state` says what delays the answer, if anything does.

    `progress` is that of the answer under way, empty before the first news of it.
    """
    width, height = shutil.get_terminal_size()
    # The line of text above the panel stays on the screen, since text goes on there.
    rows_max = max(1, height - 1)
    first = []
    if view.running is not None:
        first.append(_state_row(chat, view.running, state, progress))
    last = []
    if not chat.replica.hub.is_linked:
        last.append(Text(away_words(chat.replica, chat.held.id), style="yellow"))
    next_max = rows_max - 1 - len(first) - len(last)
    rows = [*first, *_next_rows(chat, view, next_max, width), *last]
    shown = [_ansi(chat, row, width) for row in rows[: rows_max - 1]]
    edit_rows = max(1, min(EDIT_ROWS_MAX, rows_max - 1 - len(shown)))
    typed, row, column = editor.rows(PROMPT, width, edit_rows)
    if typed[0].startswith(PROMPT):
        words = Text.assemble((PROMPT, "cyan"), typed[0][len(PROMPT) :])
        typed[0] = _ansi(chat, words, width)
    return Panel((*shown, *typed), len(shown) + row, column)


def _state_row(chat: ChatSession, running: EntryId, state: str, progress: Text) -> Text:
    author = chat.held.log.entries[running].header.author
    row = Text(f"answering {chat.names.of(author)} · ", style="dim")
    if state:
        return row.append(state, style="yellow")
    return row + (progress or Text("waiting for the host", style="dim"))


def _next_rows(chat: ChatSession, view: BranchView, rows_max: int, width: int) -> list[Text]:
    """Return who is next, in at most `rows_max` rows: the first ones, and how many more."""
    count = min(NEXT_MAX, len(view.next))
    if count + (len(view.next) > count) > rows_max:
        count = max(0, rows_max - 1)
    rows = []
    for one in view.next[:count]:
        said = one.words[:width] or ANOTHER
        rows.append(Text(f"next  {chat.names.of(one.author)}: {said}", style="dim"))
    more = len(view.next) - len(rows)
    if more > 0:
        words = f"      and {more} more" if rows else f"next  {more} more"
        rows.append(Text(words, style="dim"))
    return rows[: max(0, rows_max)]


def _ansi(chat: ChatSession, row: Text, width: int) -> str:
    row.plain = harmless(row.plain.replace("\n", " "))
    if row.cell_len >= width:
        row.truncate(width - 1, overflow="ellipsis")
    people = chat.session.out.people
    with people.capture() as capture:
        people.print(row, end="")
    return capture.get()
