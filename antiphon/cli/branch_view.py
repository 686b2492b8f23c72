"""One branch as its readers see it: the words so far, the answer under way, who is next.

Pure. What was written behind the answer under way is held back, since it comes after it
in the context; the panel of `chat` shows it as what is next.
"""

from collections.abc import Collection
from dataclasses import dataclass

from antiphon.cli.names import YOU, Names
from antiphon.cli.output import harmless
from antiphon.cli.questions import own_message
from antiphon.cli.rows import entries_at, line_of
from antiphon.cli.undone import is_taken_back
from replica.conversation import Conversation, Place, awaited, calls_ahead, queued_place
from replica.ids import EntryId, PublicKey
from replica.log import Entry


@dataclass(frozen=True, slots=True)
class Next:
    """A turn that waits for the answer under way."""

    author: PublicKey
    words: str
    """In one line; empty where another answer is asked for, without a message."""


@dataclass(frozen=True, slots=True)
class BranchView:
    """A branch, divided at the answer under way."""

    shown: tuple[Entry, ...]
    running: EntryId | None
    """The request that is being answered, or is the next to be."""
    waiting: tuple[EntryId, ...]
    """All requests without an answer, the running one first."""
    next: tuple[Next, ...]


NO_BRANCH = BranchView((), None, (), ())


def view_of(
    held: Conversation,
    place: Place,
    *,
    ending: Collection[EntryId] = (),
    given_up: Collection[EntryId] = (),
) -> BranchView:
    """Return the branch that ends at `place`.

    `ending` are cancelled requests whose answers are still shown, until their ends arrive,
    unless the branch does not hold them, or they were taken back; `given_up` are requests whose
    answers are not waited for.
    """
    entries = entries_at(held, place)
    ids = [entry.id for entry in entries]
    still = [i for i in ending if i in ids and held.order.generation_of(i) is None]
    still = [i for i in still if not is_taken_back(held, i)]
    waiting = list(dict.fromkeys([*still, *awaited(held, place)]))
    waiting = [i for i in waiting if i not in given_up]
    # A host answers the first one; a sealed one is being answered.
    waiting.sort(key=lambda i: i not in held.order.seal_of)
    if not waiting:
        return BranchView(tuple(entries), None, (), ())
    running = waiting[0]
    cut = ids.index(running) + 1 if running in ids else len(ids)
    behind = entries[cut:]
    return BranchView(
        tuple(entries[:cut]), running, tuple(waiting), tuple(_next(held, behind, waiting))
    )


def queue_words(held: Conversation, view: BranchView, names: Names) -> str:
    """Return whose answer is under way and who is next as one line; empty if none is awaited."""
    if view.running is None:
        return ""
    whose = names.of(held.log.entries[view.running].header.author)
    is_sealed = view.running in held.order.seal_of
    waits = "wait" if whose == YOU else "waits"
    words = f"answering {whose}" if is_sealed else f"{whose} {waits}{_for_tool(held, view, names)}"
    if not view.next:
        return words
    more = f" and {len(view.next) - 1} more" if len(view.next) > 1 else ""
    return f"{words}, next {names.of(view.next[0].author)}{more}"


def _for_tool(held: Conversation, view: BranchView, names: Names) -> str:
    """Return the tool whose result the first request waits for, as words behind "waits"."""
    place = queued_place(held, view.running) if view.running is not None else None
    for one in calls_ahead(held, place) if place is not None else ():
        who, tool = names.of(one.asked.executor), harmless(one.call.name)
        return f" for your tool {tool}" if who == YOU else f" for the tool {tool} of {who}"
    return ""


def _next(held: Conversation, behind: list[Entry], waiting: list[EntryId]) -> list[Next]:
    requests = (entry for entry in behind if entry.id in waiting)
    return [
        Next(request.header.author, line_of(held, own_message(held, request)))
        for request in requests
    ]
