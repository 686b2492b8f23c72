"""The branches beside the one that a chat shows, which it announces as they come."""

from collections.abc import Iterable

from antiphon.cli.chat.chat_screen import ChatScreen
from antiphon.cli.chat.chat_session import ChatSession
from antiphon.cli.commands import branch_words
from antiphon.cli.common import Choices
from replica.conversation import goes_behind
from replica.ids import EntryId
from replica.log import Entry, Kind
from replica.order import SealNode


class OtherBranches:
    """What one chat has to announce, and has announced."""

    def __init__(self, chat: ChatSession, screen: ChatScreen) -> None:
        """Announce on `screen` what is not on the branch of `chat`."""
        self._chat = chat
        self._screen = screen
        self._new: list[EntryId] = []
        self._due: list[SealNode] = []
        """The branches to announce, in order."""
        self._said_for = ("", "")
        """The chosen entry, and the branch left for it, once it was said that this goes on."""

    def receive(self, entries: Iterable[Entry]) -> None:
        """Note the seals among new entries."""
        self._new += [entry.id for entry in entries if entry.header.kind == Kind.SEAL]

    async def look(self) -> None:
        """Note where new seals have begun other branches, and that others go on with the one left.

        A branch is left while the next message follows a chosen entry. What was on the branch
        that is shown when it came is never announced, and what was undone is not: a host may
        have sealed it before it was told.
        """
        new, self._new = self._new, []
        if not new:
            return
        choices, order = self._chat.choices(), self._chat.held.order
        choice, shown = (choices.at, self._chat.branch), self._shown(choices)
        for node in filter(None, map(order.nodes.get, new)):
            if _is_on(shown, node) or node.seal.request in self._chat.undone:
                continue
            goes_on = self._is_on_left(choices, node)
            is_first = goes_on and self._said_for != choice
            is_others = self._is_of_others(node) and (is_first or node.parent is shown)
            if len(order.children(node.parent)) > 1 or is_others:
                self._due.append(node)
                self._said_for = choice if goes_on else self._said_for

    async def announce(self) -> None:
        """Say what is due, except for branches that are shown by now."""
        due, self._due = self._due, []
        if due:
            shown = self._shown(self._chat.choices())
            for node in due:
                if not _is_on(shown, node):
                    self._say(node)

    def _shown(self, choices: Choices) -> SealNode | None:
        """Return the end of the branch that is shown."""
        return goes_behind(self._chat.held, choices.place(self._chat.held))

    def _is_on_left(self, choices: Choices, node: SealNode) -> bool:
        """Say whether a seal is on the branch from which the user went to a chosen entry."""
        held = self._chat.held
        left = Choices(branch=self._chat.branch).place(held)
        return bool(choices.at) and _is_on(goes_behind(held, left), node)

    def _is_of_others(self, node: SealNode) -> bool:
        author = self._chat.held.log.entries[node.seal.request].header.author
        return author != self._chat.replica.public

    def _say(self, node: SealNode) -> None:
        chat = self._chat
        self._screen.note(
            f"another branch, by {branch_words(chat.held, node, chat.names)}"
            f" · /switch {chat.short(node.id)} goes there",
            "yellow",
        )


def _is_on(end: SealNode | None, node: SealNode) -> bool:
    """Say whether a seal is on the branch that ends with another."""
    return end is not None and end.extends(node)
