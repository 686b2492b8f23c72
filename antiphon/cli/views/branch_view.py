"""One branch as its readers see it: the words so far, the answer under way, who is next.

Pure. What was written behind the answer under way is held back, since it comes after it
in the context; the panel of `chat` shows it as what is next.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from antiphon.cli.views.names import YOU, Names
from antiphon.cli.views.output import harmless
from antiphon.cli.views.questions import own_message
from antiphon.cli.views.rows import entries_at, line_of
from antiphon.cli.views.undone import is_taken_back
from replica.conversation import (
    Conversation,
    Place,
    answers_ahead,
    calls_ahead,
    queued_place,
    waiting_beside,
)
from replica.ids import EntryId, PublicKey
from replica.log import Entry


@dataclass(frozen=True, slots=True)
class Next:
    """A turn that waits for the answer under way."""

    request: Entry
    message: Entry | None
    """None where another answer is asked for."""
    words: str
    """Those of the message, in one line."""

    @property
    def author(self) -> PublicKey:
        """Who asks."""
        return self.request.header.author


@dataclass(frozen=True, slots=True)
class BranchView:
    """A branch, divided at the answer under way."""

    shown: tuple[Entry, ...]
    running: EntryId | None
    """The request that is being answered, or is the next to be."""
    waiting: tuple[EntryId, ...]
    """All requests without an answer, the running one first."""
    next: tuple[Next, ...]
    """The turns that wait beside that, in order, whether the next message follows them or not."""


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
    unless the branch does not hold them, or they were taken back, or wait for another answer;
    `given_up` are requests whose answers are not waited for.
    """
    entries = entries_at(held, place)
    ids = [entry.id for entry in entries]
    still = [i for i in ending if i in ids and held.order.generation_of(i) is None]
    still = [i for i in still if not is_taken_back(held, i)]
    open_ones = answers_ahead(held, place)
    ahead = min((ids.index(i) for i in open_ones if i in ids), default=len(ids))
    still = [i for i in still if i in held.order.seal_of or ids.index(i) < ahead]
    waiting = list(dict.fromkeys([*still, *open_ones]))
    waiting = [i for i in waiting if i not in given_up]
    # A host answers the first one; a sealed one is being answered.
    waiting.sort(key=lambda i: i not in held.order.seal_of)
    others = (i for i in waiting_beside(held, place) if i not in given_up)
    beside = map(held.log.entries.__getitem__, others)
    running = waiting[0] if waiting else None
    cut = ids.index(running) + 1 if running in ids else len(ids)
    asked = [*(entry for entry in entries[cut:] if entry.id in waiting), *beside]
    asked.sort(key=lambda entry: entry.order_key)
    return BranchView(tuple(entries[:cut]), running, tuple(waiting), tuple(_next(held, asked)))


def queue_words(
    held: Conversation, view: BranchView, names: Names, linked: Collection[PublicKey] | None = None
) -> str:
    """Return whose answer is under way and who is next as one line; empty if none is awaited.

    `linked` are the hosts that the hub has now, None where nobody knows.
    """
    if view.running is None and view.next:
        return _waits(names.of(view.next[0].author))
    if view.running is None:
        return ""
    turns = [held.log.entries[view.running], *(one.request for one in view.next)]
    is_sealed = view.running in held.order.seal_of
    if not is_sealed:  # one beside it may come first, whose author did not know of what it follows
        turns.sort(key=lambda entry: entry.order_key)
    first, *rest = turns
    whose = names.of(first.header.author)
    tool = "" if is_sealed else _for_tool(held, first.id, names)
    gone = _missing_host(held, first.id, linked)
    if gone and not tool:
        words = f"{_waits(whose)} for a host that {gone}"
    else:
        words = f"answering {whose}" if is_sealed else _waits(whose) + tool
    if not rest:
        return words
    more = f" and {len(rest) - 1} more" if len(rest) > 1 else ""
    return f"{words}, next {names.of(rest[0].header.author)}{more}"


def _waits(whose: str) -> str:
    return f"{whose} {'wait' if whose == YOU else 'waits'}"


def _missing_host(
    held: Conversation, request: EntryId, linked: Collection[PublicKey] | None
) -> str:
    """Return why the host of a request does not answer; empty if it is there, for all we know."""
    asked = held.order.request(request)
    if asked is None:
        return ""
    if not held.log.membership.is_host(asked.host):
        return "was removed"
    return "is not linked to the hub" if linked is not None and asked.host not in linked else ""


def _for_tool(held: Conversation, request: EntryId, names: Names) -> str:
    """Return the tool whose result a request waits for, as words behind "waits"."""
    place = queued_place(held, request)
    for one in calls_ahead(held, place) if place is not None else ():
        who, tool = names.of(one.asked.executor), harmless(one.call.name)
        return f" for your tool {tool}" if who == YOU else f" for the tool {tool} of {who}"
    return ""


def _next(held: Conversation, asked: Iterable[Entry]) -> Iterator[Next]:
    for request in asked:
        message = own_message(held, request)
        yield Next(request, message, line_of(held, message))
